//! Arithmetic paths: which there are, which this CPU has, and how a kernel is run on one.
#![allow(unsafe_code)]

use super::simd::{Simd, portable::Portable};
#[cfg(target_arch = "x86_64")]
use super::simd::{avx2::Avx2, avx512::Avx512};

/// An arithmetic path. Results are equal to the bit only on the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512F.
    Avx512,
    /// AVX2 and FMA.
    Avx2,
    /// Plain Rust, multiply then add.
    Portable,
}

impl Isa {
    /// From the fastest to the slowest.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// Name in checkpoints and reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Whether this CPU has it.
    pub fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => std::arch::is_x86_feature_detected!("avx512f") && Isa::Avx2.available(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
        }
    }

    /// The fastest that this CPU has.
    pub fn detect() -> Isa {
        Self::ALL
            .into_iter()
            .find(|isa| isa.available())
            .unwrap_or(Isa::Portable)
    }

    /// Rows and columns of a tile of the matrix kernel.
    pub(super) fn tile(self) -> (usize, usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => (Avx512::MR, Avx512::NR),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (Avx2::MR, Avx2::NR),
            _ => (Portable::MR, Portable::NR),
        }
    }

    /// Runs `body` with the instruction set enabled.
    /// # Safety
    /// The path is available, and what `body` requires holds.
    pub(super) unsafe fn run<B: Body>(self, body: B) -> B::Out {
        // SAFETY: as required of the caller.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(body),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(body),
                _ => body.run(Portable),
            }
        }
    }
}

/// Work that is compiled once for each path.
pub(super) trait Body {
    type Out;
    /// Implementations are `#[inline(always)]`, and so is all they call with `s`.
    /// # Safety
    /// Stated by each implementation.
    unsafe fn run<S: Simd>(self, s: S) -> Self::Out;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512<B: Body>(body: B) -> B::Out {
    // SAFETY: as required of the caller.
    unsafe { body.run(Avx512::new()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<B: Body>(body: B) -> B::Out {
    // SAFETY: as required of the caller.
    unsafe { body.run(Avx2::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_path_is_the_first_available() {
        let first = Isa::ALL.into_iter().find(|i| i.available());
        assert_eq!(Some(Isa::detect()), first);
        assert!(Isa::Portable.available());
    }
}
