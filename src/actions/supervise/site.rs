//! Where the ranks of a job run: virtual nodes of this machine, or the nodes of a Slurm allocation.

use crate::machine::hostlist;
use crate::plan::{Plan, SchedulerKind};
use anyhow::{Context, bail, ensure};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

/// Nodes of a job by their number, and where its supervisor is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    pub names: Vec<String>,
    pub address: Ipv4Addr,
    /// Where rank 0 is reached by the others.
    pub master: Ipv4Addr,
    /// One `srun` launches all ranks; else each node has a launcher of its own.
    pub srun: bool,
}

impl Nodes {
    /// Those of the job that this process is in.
    pub(super) fn of(plan: &Plan) -> anyhow::Result<Nodes> {
        let count = plan.job.nodes;
        if plan.machine.scheduler == SchedulerKind::Local {
            return Ok(Nodes {
                names: (0..count).map(crate::launch::node_name).collect(),
                address: Ipv4Addr::LOCALHOST,
                master: Ipv4Addr::LOCALHOST,
                srun: false,
            });
        }
        let list = std::env::var("SLURM_JOB_NODELIST")
            .context("SLURM_JOB_NODELIST is not set: this is no job of Slurm")?;
        let mut names = hostlist::expand(&list).context("cannot read SLURM_JOB_NODELIST")?;
        ensure!(
            names.len() >= count,
            "the allocation {list} has {} nodes, the plan needs {count}",
            names.len()
        );
        names.truncate(count);
        // The shell of an allocation may stand on the login node.
        let first = std::env::var("SLURMD_NODENAME").ok();
        let (address, master) = match first {
            Some(here) if here == names[0] => {
                let address = address(plan.machine.interface.as_deref())?;
                (address, address)
            }
            None if plan.machine.here => (address(None)?, look_up(&names[0])?),
            here => bail!(
                "this is {}, but rank 0 goes to {}: the supervisor must stand on the first node",
                here.unwrap_or_else(|| "no node of the job".into()),
                names[0]
            ),
        };
        Ok(Nodes {
            names,
            address,
            master,
            srun: true,
        })
    }

    /// Names of the launchers.
    pub(super) fn launchers(&self) -> Vec<String> {
        match self.srun {
            true => vec!["srun".into()],
            false => self.names.clone(),
        }
    }
}

/// The address of a node by its name; never one of 127/8.
fn look_up(name: &str) -> anyhow::Result<Ipv4Addr> {
    let found = (name, 0)
        .to_socket_addrs()
        .with_context(|| format!("cannot find the address of {name}"))?;
    let mut usable = found.filter_map(|at| match at.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    });
    usable
        .next()
        .with_context(|| format!("{name} has no address that other nodes could reach"))
}

/// The address of `interface`, else the first that leads off this node; never one of 127/8.
fn address(interface: Option<&str>) -> anyhow::Result<Ipv4Addr> {
    let mut seen = Vec::new();
    for entry in getifaddrs().context("cannot list the network interfaces")? {
        let Some(address) = entry
            .address
            .and_then(|a| a.as_sockaddr_in().map(|a| a.ip()))
        else {
            continue;
        };
        let usable = entry.flags.contains(InterfaceFlags::IFF_UP) && !address.is_loopback();
        seen.push(format!("{} {address}", entry.interface_name));
        let wanted = interface.is_none_or(|name| entry.interface_name == name);
        if usable && wanted {
            return Ok(address);
        }
    }
    let seen = seen.join(", ");
    match interface {
        Some(name) => bail!(
            "no address on the interface {name} of the machine profile (`node.interface`); here are: {seen}"
        ),
        None => bail!("no network address that other nodes could reach; here are: {seen}"),
    }
}
