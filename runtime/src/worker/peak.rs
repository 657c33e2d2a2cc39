//! What the cores of this machine can do, as one line of JSON.

use super::WorkerError;
use crate::contract::exit;
use crate::device::Device;
use crate::device::cpu::{CpuDevice, peak};
use std::io::Write;
use std::path::PathBuf;

/// Seconds of each measurement.
const MEASURE: f64 = 0.2;

/// Measures on `threads` threads and prints the result to `out`.
pub(super) fn run(threads: usize, out: &mut dyn Write) -> Result<i32, WorkerError> {
    let threads = threads.max(1);
    let mut device = CpuDevice::new(threads)?;
    let fma = peak::fma_gflops(threads, MEASURE);
    let values = serde_json::json!({
        "threads": threads,
        "isa": device.isa(),
        "fma_gflops": fma,
        "gemm_gflops": peak::gemm_gflops(&mut device, MEASURE),
    });
    writeln!(out, "{values}").map_err(|error| WorkerError::Output {
        path: PathBuf::from("standard output"),
        error: error.to_string(),
    })?;
    Ok(exit::DONE)
}
