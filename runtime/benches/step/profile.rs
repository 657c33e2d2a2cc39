//! A device that keeps the time of each kind of operation.

use super::processor_seconds;
use haul_runtime::blueprint::program::{Epilogue, Op, Program, Region};
use haul_runtime::device::{Device, DeviceError, Frame, Real, Sizes};
use haul_runtime::sys::region::Memory;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// What the launches of one kind took.
#[derive(Default)]
pub(crate) struct Line {
    launches: usize,
    seconds: f64,
    cpu: f64,
    flops: f64,
}

pub(crate) type Table = BTreeMap<String, Line>;

pub(crate) struct Profiled<D> {
    device: D,
    pub(crate) table: Rc<RefCell<Table>>,
}

impl<D: Device> Profiled<D> {
    pub(crate) fn new(device: D) -> Self {
        let table = Rc::default();
        Profiled { device, table }
    }
}

/// Kind of an operation, with its shape where it decides the speed, and its floating-point operations (0: memory bounds it).
fn kind(op: &Op) -> (String, f64) {
    match *op {
        Op::Gemm {
            m,
            n,
            k,
            ta,
            tb,
            accumulate,
            epilogue,
            ..
        } => {
            let side = |t| if t { 'T' } else { 'N' };
            let more = match epilogue {
                _ if accumulate => " add",
                Epilogue::None => "",
                Epilogue::Bias { .. } => " bias",
                Epilogue::BiasGelu { .. } => " gelu",
                Epilogue::BiasResidual { .. } => " residual",
            };
            let name = format!("Gemm {}{} {m}x{n}x{k}{more}", side(ta), side(tb));
            (name, 2.0 * (m * n * k) as f64)
        }
        Op::Attention {
            batch,
            seq,
            heads,
            head_dim,
            ..
        } => (
            "Attention".into(),
            attention(batch, seq, heads, head_dim, 2),
        ),
        Op::AttentionGrad {
            batch,
            seq,
            heads,
            head_dim,
            ..
        } => (
            "AttentionGrad".into(),
            attention(batch, seq, heads, head_dim, 5),
        ),
        ref other => {
            let text = format!("{other:?}");
            let end = text.find([' ', '{', '(']).unwrap_or(text.len());
            (text[..end].to_owned(), 0.0)
        }
    }
}

/// Operations of `products` products over the lower half of the scores.
fn attention(batch: usize, seq: usize, heads: usize, head_dim: usize, products: usize) -> f64 {
    (products * batch * heads * seq * (seq + 1) * head_dim) as f64
}

/// The table, the dearest first; `one` is the multiply-add rate of a processor second in GFLOP/s.
pub(crate) fn print(table: &Table, steps: usize, one: f64) {
    let total: f64 = table.values().map(|line| line.cpu).sum();
    let mut lines: Vec<_> = table.iter().collect();
    lines.sort_by(|a, b| b.1.cpu.total_cmp(&a.1.cpu));
    println!(
        "{:40} {:>8} {:>9} {:>9} {:>6} {:>9}",
        "operation", "a step", "ms", "cpu ms", "of all", "cpu share"
    );
    for (name, line) in lines {
        let each = |x: f64| x / steps as f64;
        println!(
            "{name:40} {:>8.0} {:>9.2} {:>9.2} {:>6.3} {:>9.3}",
            each(line.launches as f64),
            each(line.seconds) * 1e3,
            each(line.cpu) * 1e3,
            line.cpu / total,
            line.flops / line.cpu / one / 1e9,
        );
    }
}

impl<D: Device> Device for Profiled<D> {
    fn real(&self) -> Real {
        self.device.real()
    }

    fn isa(&self) -> &'static str {
        self.device.isa()
    }

    fn reserve(&mut self, sizes: &Sizes, grads: Option<Memory>) -> Result<(), DeviceError> {
        self.device.reserve(sizes, grads)
    }

    fn launch(&mut self, program: &Program, op: &Op, frame: Frame) -> Result<(), DeviceError> {
        let (name, flops) = kind(op);
        let (start, used) = (Instant::now(), processor_seconds());
        let result = self.device.launch(program, op, frame);
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), processor_seconds() - used);
        let mut table = self.table.borrow_mut();
        let line = table.entry(name).or_default();
        line.launches += 1;
        line.seconds += seconds;
        line.cpu += cpu;
        line.flops += flops;
        result
    }

    fn read(&self, region: Region, offset: usize, out: &mut [u8]) {
        self.device.read(region, offset, out);
    }

    fn write(&mut self, region: Region, offset: usize, data: &[u8]) {
        self.device.write(region, offset, data);
    }
}
