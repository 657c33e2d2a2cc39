//! What Slurm's commands print about a site → what it allows. Pure; what cannot be read is left out, never guessed.

/// What a user may do under one account, on one partition or all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Association {
    pub cluster: String,
    pub account: String,
    pub default_qos: String,
    pub qos: Vec<String>,
    pub most: Most,
}

/// Limits that are set; absent is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Most {
    pub running: Option<u64>,
    pub submitted: Option<u64>,
    /// Seconds.
    pub walltime: Option<u64>,
}

/// One line of sinfo: nodes that are alike, of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    pub partition: String,
    pub is_default: bool,
    /// `up`, `down`, `drain`, `inact`.
    pub available: String,
    /// Seconds; absent is no limit.
    pub walltime: Option<u64>,
    /// Nodes of a job; absent is no limit.
    pub most: Option<u64>,
    pub count: u64,
    /// Hardware threads, as Slurm counts them.
    pub cpus: u64,
    pub memory_mib: u64,
    pub devices: u64,
    pub usable: bool,
}

/// Of `sacctmgr -nP show assoc`.
pub(super) const ASSOCIATIONS: &str =
    "format=Cluster,Account,DefaultQOS,QOS,MaxJobs,MaxSubmit,MaxWall";
/// Of `sacctmgr -nP show qos`.
pub(super) const QOS: &str = "format=Name,MaxJobsPU,MaxSubmitPU,MaxWall";
/// Of `sinfo -h -e -o`.
pub(super) const NODES: &str = "%P|%a|%l|%s|%D|%c|%m|%T|%G";

/// Rows of [`ASSOCIATIONS`].
pub(super) fn associations(text: &str) -> Vec<Association> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [
            cluster,
            account,
            default_qos,
            qos,
            running,
            submitted,
            walltime,
        ] = fields[..]
        else {
            return None;
        };
        Some(Association {
            cluster: cluster.into(),
            account: account.into(),
            default_qos: default_qos.into(),
            qos: words(qos),
            most: most(running, submitted, walltime),
        })
    };
    text.lines()
        .filter_map(row)
        .filter(|row| !row.account.is_empty())
        .collect()
}

/// Rows of [`QOS`].
pub(super) fn qos(text: &str) -> Vec<(String, Most)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, running, submitted, walltime] = fields[..] else {
            return None;
        };
        Some((name.to_owned(), most(running, submitted, walltime)))
    };
    text.lines().filter_map(row).collect()
}

fn most(running: &str, submitted: &str, walltime: &str) -> Most {
    Most {
        running: running.parse().ok(),
        submitted: submitted.parse().ok(),
        walltime: seconds(walltime),
    }
}

fn words(list: &str) -> Vec<String> {
    let words = list
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Rows of [`NODES`].
pub(super) fn nodes(text: &str) -> Vec<Nodes> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.splitn(9, '|').map(str::trim).collect();
        let [
            partition,
            available,
            walltime,
            size,
            count,
            cpus,
            memory,
            state,
            devices,
        ] = fields[..]
        else {
            return None;
        };
        let number = |text: &str| text.trim_end_matches('+').parse::<u64>().ok();
        Some(Nodes {
            partition: partition.trim_end_matches('*').to_owned(),
            is_default: partition.ends_with('*'),
            available: available.into(),
            walltime: seconds(walltime),
            most: size.rsplit('-').next()?.parse().ok(),
            count: number(count)?,
            cpus: number(cpus)?,
            memory_mib: number(memory)?,
            devices: accelerators(devices),
            usable: is_usable(state),
        })
    };
    text.lines().filter_map(row).collect()
}

/// Whether jobs start on nodes in this state, now or once they are free. One that powers up on demand counts.
fn is_usable(state: &str) -> bool {
    const OUT: [&str; 8] = [
        "down", "drain", "fail", "maint", "inval", "unk", "error", "future",
    ];
    let lower = state.to_lowercase();
    // The mark of a node that does not answer.
    !lower.contains('*') && !OUT.iter().any(|word| lower.starts_with(word))
}

/// Accelerators of a list such as `gpu:mi250x:8(S:0-3),nvme:1`.
fn accelerators(list: &str) -> u64 {
    let mut depth = 0;
    let without_sockets: String = list
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0 && *c != ')'
        })
        .collect();
    let gpus = without_sockets
        .split(',')
        .map(str::trim)
        .filter_map(|resource| {
            let mut parts = resource.split(':');
            (parts.next()? == "gpu").then(|| {
                parts
                    .next_back()
                    .map_or(1, |count| count.parse().unwrap_or(1))
            })
        });
    gpus.sum()
}

/// Slurm's times: `[days-]hours:minutes:seconds`, `minutes:seconds`, `minutes`. Words such as `infinite` are no limit.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (days, rest) = match text.trim().split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text.trim()),
    };
    let parts: Vec<u64> = rest
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let time = match (parts[..].as_ref(), text.contains('-')) {
        ([hours, minutes, seconds], _) => hours
            .checked_mul(3600)?
            .checked_add(minutes.checked_mul(60)?)?
            .checked_add(*seconds)?,
        ([hours, minutes], true) => hours
            .checked_mul(3600)?
            .checked_add(minutes.checked_mul(60)?)?,
        ([minutes, seconds], false) => minutes.checked_mul(60)?.checked_add(*seconds)?,
        ([hours], true) => hours.checked_mul(3600)?,
        ([minutes], false) => minutes.checked_mul(60)?,
        _ => return None,
    };
    days.checked_mul(86_400)?.checked_add(time)
}

/// Year and month of `slurm 23.02.5` or `slurm-wlm 22.05.8`.
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_ascii_whitespace().last()?;
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The value of a key of `scontrol show config`.
pub(super) fn setting<'t>(config: &'t str, key: &str) -> Option<&'t str> {
    config.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The value of an option of sbatch among those of the profile: `--long=x`, `--long x`, `-s x`, `-sx`. The last counts.
pub(super) fn option<'o>(options: &'o [String], long: &str, short: &str) -> Option<&'o str> {
    let mut found = None;
    let mut words = options
        .iter()
        .flat_map(|option| option.split_ascii_whitespace());
    while let Some(word) = words.next() {
        if word == long || word == short {
            found = words.next().or(found);
        } else if let Some(value) = word
            .strip_prefix(long)
            .and_then(|rest| rest.strip_prefix('='))
        {
            found = Some(value);
        } else if let Some(value) = word.strip_prefix(short).filter(|_| !word.starts_with("--")) {
            found = Some(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_slurm() {
        for (text, expected) in [
            ("1-00:00:00", Some(86_400)),
            ("10:00", Some(600)),
            ("02:00:00", Some(7200)),
            ("30", Some(1800)),
            ("2-12", Some(2 * 86_400 + 12 * 3600)),
            ("1-06:30", Some(86_400 + 6 * 3600 + 1800)),
            ("infinite", None),
            ("UNLIMITED", None),
            ("", None),
            ("n/a", None),
            ("99999999999999999999-0", None),
            ("18446744073709551615-00:00:00", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn nodes_are_counted_with_what_they_have() {
        let rows = nodes(
            "batch*|up|1-00:00:00|1-infinite|3|8|16000|idle|gpu:mi250x:8\n\
             batch*|up|1-00:00:00|1-infinite|1|8|16000|down*|gpu:mi250x:8(S:0-1),nvme:1\n\
             debug|up|10:00|1-2|4|128|512000+|mixed|(null)\n\
             garbage\nx|up|y|z|many|8|1|idle|\n",
        );
        assert_eq!(rows.len(), 3, "{rows:?}");
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.count, row.devices, row.usable, row.most, row.is_default))
            .collect();
        assert_eq!(
            seen,
            [
                (3, 8, true, None, true),
                (1, 8, false, None, true),
                (4, 0, true, Some(2), false)
            ]
        );
        assert_eq!((rows[2].memory_mib, rows[2].walltime), (512_000, Some(600)));
        assert_eq!(
            (
                accelerators("gpu:8"),
                accelerators("gpu:a:4,gpu:b:2(IDX:0,1)"),
                accelerators("gpu")
            ),
            (8, 6, 1)
        );
        for (state, usable) in [
            ("planned", true),
            ("idle~", true),
            ("drained", false),
            ("inval", false),
            ("allocated*", false),
        ] {
            assert_eq!(is_usable(state), usable, "{state}");
        }
    }

    #[test]
    fn accounts_and_their_limits() {
        let rows = associations(
            "haul|proj|normal|debug,normal|4|100|1-00:00:00\nhaul|root||normal|||\nhaul|||||\nsacctmgr: error\n",
        );
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[0].qos, ["debug", "normal"]);
        assert_eq!(
            rows[0].most,
            Most {
                running: Some(4),
                submitted: Some(100),
                walltime: Some(86_400)
            }
        );
        assert_eq!(rows[1].most, Most::default());
        assert_eq!(
            qos("debug||1|02:00:00\n"),
            [(
                "debug".to_owned(),
                Most {
                    running: None,
                    submitted: Some(1),
                    walltime: Some(7200)
                }
            )]
        );
    }

    #[test]
    fn versions_settings_and_options() {
        assert_eq!(version("slurm-wlm 22.05.8\n"), Some((22, 5)));
        assert_eq!(version("slurm 25.11.0-0rc1"), Some((25, 11)));
        assert_eq!(version("no version"), None);
        let config = "Configuration data as of 1\nMinJobAge               = 300 sec\nClusterName             = frontier\n";
        assert_eq!(setting(config, "ClusterName"), Some("frontier"));
        assert_eq!(setting(config, "JobAge"), None);
        let options: Vec<String> = ["--partition=batch", "--exclusive", "-p debug", "-qlow"]
            .map(Into::into)
            .into();
        assert_eq!(option(&options, "--partition", "-p"), Some("debug"));
        assert_eq!(option(&options, "--qos", "-q"), Some("low"));
        assert_eq!(option(&options[1..2], "--partition", "-p"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,200}|([0-9|:,()a-z*\n-]{0,200})") {
            let _ = (associations(&text), qos(&text), nodes(&text), seconds(&text), version(&text), setting(&text, "x"));
        }
    }
}
