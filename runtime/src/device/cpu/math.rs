//! Elementary functions by polynomials of our own: system libraries dispatch by CPU, so their bits differ between nodes.
#![cfg_attr(test, allow(unsafe_code))]

use super::simd::Simd;

/// e^x to 2 units in the last place. Results under 2^-126.5 are 0, above 2^127.5 infinity; NaN stays NaN.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    exp_below(s, s.min(s.splat(89.0), x))
}

/// [`exp`] for x <= 89 or NaN, such as differences to a maximum.
#[inline(always)]
pub(super) fn exp_below<S: Simd>(s: S, x: S::V) -> S::V {
    // x = n ln 2 + r with |r| <= ln 2 / 2 and the polynomial of Cephes expf. Adding 1.5 x 2^23 + 127 rounds to the nearest n and
    // leaves n + 127, the exponent of 2^n, in the lowest bits; the bounds make it end at 0 and 255, which are 0 and infinity.
    const MAGIC: f32 = 12_583_039.0;
    let x = s.max(s.splat(-88.0), x);
    let t = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(MAGIC));
    let n = s.sub(t, s.splat(MAGIC));
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for c in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
        1.0,
        1.0,
    ] {
        p = s.fma(p, r, s.splat(c));
    }
    s.mul(p, s.shift_to_exponent(t))
}

/// ln(x) for one number, to 2 units in the last place; -infinity at 0, NaN below.
pub(super) fn ln(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return f32::NAN;
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x == f32::INFINITY {
        return x;
    }
    // Cephes logf: x = m 2^e with m in [sqrt(1/2), sqrt(2)); subnormals are scaled up first.
    let (x, shift) = if x < f32::MIN_POSITIVE {
        (x * 8_388_608.0, -23)
    } else {
        (x, 0)
    };
    let bits = x.to_bits();
    let mut e = (bits >> 23) as i32 - 126 + shift;
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    if m < std::f32::consts::FRAC_1_SQRT_2 {
        e -= 1;
        m += m;
    }
    let f = m - 1.0;
    let z = f * f;
    let mut p = 7.037_683_6e-2f32;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_7e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p * f + c;
    }
    let e = e as f32;
    let y = p * f * z + e * -2.121_944_4e-4 - 0.5 * z;
    f + y + e * 0.693_359_4
}

#[cfg(test)]
mod tests {
    use super::super::isa::{Body, Isa};
    use super::*;

    /// exp of each element.
    struct Map(Vec<f32>);

    impl Body for Map {
        type Out = Vec<f32>;
        #[inline(always)]
        unsafe fn run<S: Simd>(self, s: S) -> Vec<f32> {
            let mut out = Vec::new();
            for chunk in self.0.chunks(S::LANES) {
                let mut y = vec![0.0; chunk.len()];
                // SAFETY: parts are cut to the chunk.
                unsafe {
                    let v = s.load_part(chunk.as_ptr(), chunk.len());
                    let v = exp(s, v);
                    s.store_part(y.as_mut_ptr(), y.len(), v);
                }
                out.extend(y);
            }
            out
        }
    }

    fn map(x: Vec<f32>) -> Vec<Vec<f32>> {
        let paths = Isa::ALL.into_iter().filter(|isa| isa.available());
        // SAFETY: only available paths.
        paths
            .map(|isa| unsafe { isa.run(Map(x.clone())) })
            .collect()
    }

    fn range(from: f32, to: f32) -> Vec<f32> {
        let n = 400_001;
        (0..n)
            .map(|i| from + (to - from) * (i as f32 / (n - 1) as f32))
            .collect()
    }

    #[test]
    fn exp_is_accurate_over_the_range_and_keeps_special_values() {
        let x = range(-87.3, 88.3);
        for y in map(x.clone()) {
            for (x, y) in x.iter().zip(y) {
                let want = f64::from(*x).exp();
                let error = (f64::from(y) - want).abs() / want;
                assert!(
                    error < 2.0 * f64::from(f32::EPSILON),
                    "exp({x}) = {y}, want {want}"
                );
            }
        }
        let special = vec![
            f32::NAN,
            f32::NEG_INFINITY,
            f32::INFINITY,
            0.0,
            -200.0,
            200.0,
        ];
        for y in map(special) {
            assert!(y[0].is_nan());
            assert_eq!(y[1..], [0.0, f32::INFINITY, 1.0, 0.0, f32::INFINITY]);
        }
    }

    #[test]
    fn ln_is_accurate_over_the_range_and_keeps_special_values() {
        for bits in (1u32..0x7f80_0000).step_by(997) {
            let x = f32::from_bits(bits);
            let want = f64::from(x).ln();
            let error = (f64::from(ln(x)) - want).abs();
            let scale = f64::from(f32::EPSILON);
            assert!(
                error <= 1.5 * scale * want.abs().max(1e-30),
                "ln({x}) = {}, want {want}",
                ln(x)
            );
        }
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
        assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
    }
}
