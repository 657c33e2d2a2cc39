//! Every operation on every path of this CPU against naive f64; 1, 2 and 3 threads equal to the bit; nothing else is written.

mod attention;
mod elementwise;
mod matrix;
mod rows;

use super::{CpuDevice, Isa, Waiting};
use crate::blueprint::program::{Op, Program, Region, Val, ValInfo};
use crate::device::{Device, DeviceError, Frame, Sizes};

/// A small generator: reproducible and without structure that a kernel could hide behind.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 20) as usize % n
    }

    /// Evenly in -1..1.
    pub(super) fn real(&mut self) -> f32 {
        ((self.next() >> 40) as f32) / (1 << 23) as f32 - 1.0
    }

    pub(super) fn reals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.real()).collect()
    }

    pub(super) fn indices(&mut self, n: usize, limit: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(limit) as u32).collect()
    }
}

pub(super) fn widen(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Values with their first contents, laid out one after another with odd gaps.
#[derive(Default)]
pub(super) struct Rig {
    program: Program,
    real: Vec<f32>,
    index: Vec<u32>,
    sums: Vec<f64>,
}

/// Contents of all values after an operation.
#[derive(PartialEq)]
pub(super) struct After {
    real: Vec<u32>,
    sums: Vec<u64>,
}

impl Rig {
    fn place(&mut self, region: Region, offset: usize, len: usize) -> Val {
        let id = self.program.vals.len() as u32;
        self.program.vals.push(ValInfo {
            name: format!("v{id}"),
            region,
            offset,
            len,
        });
        Val(id)
    }

    pub(super) fn reals(&mut self, x: &[f32]) -> Val {
        let offset = self.real.len() + 3;
        self.real.resize(offset, 7.25);
        self.real.extend(x);
        self.place(Region::Work, offset, x.len())
    }

    pub(super) fn index(&mut self, x: &[u32]) -> Val {
        let offset = self.index.len();
        self.index.extend(x);
        self.place(Region::Tokens, offset, x.len())
    }

    pub(super) fn sums(&mut self, x: &[f64]) -> Val {
        let offset = self.sums.len();
        self.sums.extend(x);
        self.place(Region::Scalars, offset, x.len())
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            work: self.real.len() + 16,
            tokens: self.index.len(),
            scalars: self.sums.len(),
            slots: 1,
            ..Sizes::default()
        }
    }

    pub(super) fn try_run(&self, isa: Isa, threads: usize, op: &Op) -> Result<After, DeviceError> {
        let mut device = CpuDevice::with(threads, isa, Waiting::Block)?;
        device.reserve(&self.sizes(), None)?;
        let mut real = self.real.clone();
        real.resize(real.len() + 16, 7.25);
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        device.write(Region::Work, 0, &bytes(&real));
        let tokens: Vec<_> = self.index.iter().flat_map(|x| x.to_le_bytes()).collect();
        device.write(Region::Tokens, 0, &tokens);
        let sums: Vec<_> = self.sums.iter().flat_map(|x| x.to_le_bytes()).collect();
        device.write(Region::Scalars, 0, &sums);
        device.launch(&self.program, op, Frame::default())?;
        let mut out = vec![0; real.len() * 4];
        device.read(Region::Work, 0, &mut out);
        let (words, _) = out.as_chunks::<4>();
        let real = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let mut out = vec![0; self.sums.len() * 8];
        device.read(Region::Scalars, 0, &mut out);
        let (words, _) = out.as_chunks::<8>();
        let sums = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
        Ok(After { real, sums })
    }

    /// What `val` holds in `after`.
    pub(super) fn get(&self, after: &After, val: Val) -> Vec<f64> {
        let info = self.program.val(val);
        let range = info.offset..info.offset + info.len;
        match info.region {
            Region::Scalars => after.sums[range]
                .iter()
                .map(|&b| f64::from_bits(b))
                .collect(),
            _ => after.real[range]
                .iter()
                .map(|&b| f64::from(f32::from_bits(b)))
                .collect(),
        }
    }

    /// Runs `op` on each path with 1, 2 and 3 threads. Each value named in `want` is within `tolerance` of it, relative to its
    /// largest element; every other element keeps its bits.
    #[track_caller]
    pub(super) fn check(&self, op: &Op, want: &[(Val, Vec<f64>)], tolerance: f64) {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let after = self.try_run(isa, 1, op).unwrap();
            for (val, want) in want {
                let got = self.get(&after, *val);
                let scale = want
                    .iter()
                    .filter(|x| x.is_finite())
                    .fold(1e-3, |m: f64, x| m.max(x.abs()));
                assert_eq!(got.len(), want.len());
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    let near = (got - want).abs() <= tolerance * scale;
                    let same = got == want || got.is_nan() && want.is_nan();
                    assert!(
                        near || same,
                        "{}: {val:?}[{i}] is {got}, want {want}: {op:?}",
                        isa.name()
                    );
                }
            }
            let mut kept: Vec<_> = self.real.iter().map(|x| x.to_bits()).collect();
            kept.resize(after.real.len(), 7.25f32.to_bits());
            for (val, _) in want {
                let info = self.program.val(*val);
                if info.region == Region::Work {
                    let range = info.offset..info.offset + info.len;
                    kept[range.clone()].copy_from_slice(&after.real[range]);
                }
            }
            let touched = kept.iter().zip(&after.real).position(|(a, b)| a != b);
            assert_eq!(touched, None, "{}: wrote outside: {op:?}", isa.name());
            for threads in [2, 3] {
                let again = self.try_run(isa, threads, op).unwrap();
                assert!(
                    again == after,
                    "{}: {threads} threads differ: {op:?}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn a_value_beyond_its_region_is_refused_by_name() {
    let mut rig = Rig::default();
    let x = rig.reals(&[1.0; 8]);
    let refused = |rig: &Rig, op| {
        rig.try_run(Isa::Portable, 1, &op)
            .err()
            .map(|e| e.to_string())
    };
    let message = refused(&rig, Op::Zero { x, len: 9 }).unwrap();
    assert!(
        message.contains("`v0`") && message.contains("9 elements"),
        "{message}"
    );
    rig.program.vals[0].len = 1000;
    assert!(refused(&rig, Op::Zero { x, len: 9 }).is_some());
    rig.program.vals[0].offset = usize::MAX - 5;
    assert!(refused(&rig, Op::Zero { x, len: 9 }).is_some());
    rig.program.vals[0].region = Region::Tokens;
    rig.program.vals[0].len = 0;
    rig.program.vals[0].offset = 0;
    assert!(refused(&rig, Op::Zero { x, len: 0 }).is_some());
    assert!(refused(&rig, Op::Zero { x: Val(9), len: 1 }).is_some());
}

#[test]
fn an_index_beyond_its_table_is_refused_by_name() {
    let mut rig = Rig::default();
    let logits = rig.reals(&[0.0; 6]);
    let targets = rig.index(&[2, 3]);
    let stats = rig.reals(&[0.0; 6]);
    let op = Op::RowStats {
        logits,
        targets,
        stats,
        rows: 2,
        vocab: 3,
    };
    let message = rig
        .try_run(Isa::Portable, 1, &op)
        .err()
        .unwrap()
        .to_string();
    assert_eq!(message, "`v1` holds 3 in row 1, beyond the last index 2");
}

#[test]
fn slots_are_apart_and_gradients_live_in_the_memory_given() {
    let sizes = Sizes {
        kept: 8,
        grads: 8,
        slots: 2,
        ..Sizes::default()
    };
    let grads = crate::sys::region::Memory::private(32).unwrap();
    let mut device = CpuDevice::new(1).unwrap();
    device.reserve(&sizes, Some(grads.clone())).unwrap();
    let mut program = Program::default();
    for region in [Region::Kept, Region::Grads] {
        program.vals.push(ValInfo {
            name: format!("{region:?}"),
            region,
            offset: 0,
            len: 8,
        });
    }
    device.write(Region::Kept, 0, &[1; 64]);
    device.write(Region::Grads, 0, &[1; 32]);
    device
        .launch(&program, &Op::Zero { x: Val(0), len: 8 }, Frame { slot: 1 })
        .unwrap();
    device
        .launch(&program, &Op::Zero { x: Val(1), len: 8 }, Frame { slot: 1 })
        .unwrap();
    let mut kept = [9; 64];
    device.read(Region::Kept, 0, &mut kept);
    assert_eq!(kept[..32], [1; 32]);
    assert_eq!(kept[32..], [0; 32]);
    let mut given = CpuDevice::new(1).unwrap();
    given.reserve(&sizes, Some(grads.clone())).unwrap();
    let mut seen = [9; 32];
    given.read(Region::Grads, 0, &mut seen);
    assert_eq!(seen, [0; 32]);
    assert!(
        CpuDevice::new(1)
            .unwrap()
            .reserve(&sizes, Some(grads.part(0, 28)))
            .is_err()
    );
}
