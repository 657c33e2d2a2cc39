//! What this machine can do: the register-only multiply-add rate and the matrix product's rate, measured.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::CpuDevice;
use super::gemm::{Finish, Product};
use super::isa::{Body, Isa};
use super::ptr::Ptr;
use super::simd::Simd;
use crate::sys::region::Memory;

/// Independent sums: enough to hide the latency of the units, few enough for the registers.
const SUMS: usize = 12;
const ROUNDS: usize = 20_000;

struct Spin;

impl Body for Spin {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> f32 {
        let (x, y) = (s.splat(black_box(0.999_999)), s.splat(black_box(1e-6)));
        let mut acc = [s.splat(black_box(0.5)); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut acc {
                *sum = s.fma(*sum, x, y);
            }
        }
        let mut total = acc[0];
        for sum in &acc[1..] {
            total = s.add(total, *sum);
        }
        s.sum(total)
    }
}

/// GFLOP/s of multiply-adds on registers alone with `threads` threads over about `seconds`, on the fastest path of this CPU.
pub fn fma_gflops(threads: usize, seconds: f64) -> f64 {
    let isa = Isa::detect();
    let lanes = isa.tile().1 / 2;
    let barrier = Barrier::new(threads.max(1));
    let rate = || {
        barrier.wait();
        let start = Instant::now();
        let mut rounds = 0;
        while start.elapsed().as_secs_f64() < seconds {
            // SAFETY: the path was detected.
            black_box(unsafe { isa.run(Spin) });
            rounds += 1;
        }
        let flops = 2.0 * (rounds * ROUNDS * SUMS * lanes) as f64;
        flops / start.elapsed().as_secs_f64() / 1e9
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(rate)).collect();
        let own = rate();
        let rates = others.into_iter().map(|t| t.join().unwrap_or(0.0));
        own + rates.sum::<f64>()
    })
}

/// GFLOP/s of matrix products of 768 x 768 x 768 on `device` over about `seconds`, the best of the window; `None` where memory lacks.
pub fn gemm_gflops(device: &mut CpuDevice, seconds: f64) -> Option<f64> {
    const SIDE: usize = 768;
    let memory = Memory::private(3 * SIDE * SIDE * size_of::<f32>()).ok()?;
    let at = |i: usize| Ptr::new(memory.as_ptr().cast::<f32>()).add(i * SIDE * SIDE);
    let product = Product {
        m: SIDE,
        n: SIDE,
        k: SIDE,
        a: at(0),
        b: at(1),
        c: at(2),
        ta: false,
        tb: false,
        accumulate: false,
        finish: Finish::Nothing,
    };
    let flops = 2.0 * (SIDE * SIDE * SIDE) as f64;
    let (start, mut best) = (Instant::now(), 0.0f64);
    while start.elapsed().as_secs_f64() < seconds {
        let one = Instant::now();
        // SAFETY: the memory holds three matrices.
        unsafe { device.engine.product(product) };
        best = best.max(flops / one.elapsed().as_secs_f64() / 1e9);
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive_and_the_product_is_below_the_peak() {
        assert!(fma_gflops(1, 0.002) > 0.1);
        let mut device = CpuDevice::new(1).unwrap();
        assert!(gemm_gflops(&mut device, 0.002).unwrap() > 0.01);
    }
}
