//! The device of a precision, and what the machine's cores can do, measured beside the other ranks.

use super::WorkerError;
use crate::comm::Comm;
use crate::contract::Precision;
use crate::contract::config::WorkerPlan;
use crate::device::Device;
use crate::device::cpu::{CpuDevice, Isa, Waiting, peak};
use crate::device::reference::Reference;

/// Seconds of measuring before step 1.
const MEASURE: f64 = 0.1;

/// The device that carries out a plan.
pub(super) fn open(plan: &WorkerPlan) -> Result<Opened, WorkerError> {
    Ok(match plan.train_config.train.precision {
        Precision::F64 => Opened::Reference(Reference::new()),
        Precision::F32 => {
            let waiting = match plan.shared_cores {
                true => Waiting::Block,
                false => Waiting::Spin,
            };
            Opened::Cpu(Box::new(CpuDevice::with(
                plan.threads.max(1),
                Isa::detect(),
                waiting,
            )?))
        }
    })
}

/// A device by kind.
pub(super) enum Opened {
    Reference(Reference),
    Cpu(Box<CpuDevice>),
}

impl Opened {
    /// GFLOP/s of matrix products, all ranks at once and together; None for devices that are not for speed.
    pub(super) fn measure(&mut self, comm: &mut dyn Comm) -> Result<Option<f64>, WorkerError> {
        let Opened::Cpu(device) = self else {
            return Ok(None);
        };
        comm.barrier()?;
        let mine = peak::gemm_gflops(device, MEASURE).unwrap_or(f64::NAN);
        let mut all = vec![0.0; comm.size()];
        comm.all_gather(&[mine], &mut all)?;
        let sum: f64 = all.iter().sum();
        Ok(Some(sum).filter(|sum| sum.is_finite()))
    }

    /// The device itself.
    pub(super) fn device(&mut self) -> &mut dyn Device {
        match self {
            Opened::Reference(device) => device,
            Opened::Cpu(device) => &mut **device,
        }
    }
}
