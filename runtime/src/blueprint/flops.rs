//! Floating-point operations of a GPT block model: matrix products only, a multiply-add counted as two.
//!
//! Formulas: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (arXiv 2104.04473, appendix),
//! with the feed-forward width free and, for `causal`, half of the attention core.

use crate::contract::Model;

/// FLOPs of one token, forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Flops {
    /// The model's own, the attention core counted in full.
    pub full: f64,
    /// The same with the masked half of the attention core left out: what a causal kernel has to do.
    pub causal: f64,
    /// What the hardware does under full recompute of the layers (the logits are not recomputed).
    pub full_recompute: f64,
    /// What the hardware does when only the attention core is recomputed.
    pub selective_recompute: f64,
}

impl Flops {
    /// FLOPs of one token of `model`.
    pub fn of(model: &Model) -> Flops {
        let [l, h, f, s, v] = [
            model.layers,
            model.hidden,
            model.ffn,
            model.seq_len,
            model.vocab,
        ]
        .map(|x| x as f64);
        let matrices = 2.0 * l * (4.0 * h * h + 2.0 * h * f);
        let core = 4.0 * l * h * s;
        let head = 2.0 * h * v;
        let full = 3.0 * (matrices + core + head);
        Flops {
            full,
            causal: full - 1.5 * core,
            full_recompute: full + matrices + core,
            selective_recompute: full + core,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_models_have_their_known_flops() {
        for (l, h, s, v, expected) in [
            (
                12,
                768,
                1024,
                50304,
                [8.546550e8, 7.980319e8, 1.062273e9, 8.924037e8],
            ),
            (
                48,
                6144,
                2048,
                51200,
                [1.395948e11, 1.359709e11, 1.854973e11, 1.420107e11],
            ),
            (
                96,
                12288,
                2048,
                51200,
                [1.076443e12, 1.061947e12, 1.433999e12, 1.086107e12],
            ),
            (
                128,
                25600,
                2048,
                51200,
                [6.128193e12, 6.087927e12, 8.168302e12, 6.155036e12],
            ),
        ] {
            let model = Model {
                layers: l,
                hidden: h,
                heads: 1,
                ffn: 4 * h,
                seq_len: s,
                vocab: v,
                norm_eps: 1e-5,
                init_std: 0.02,
            };
            let got = Flops::of(&model);
            let got = [
                got.full,
                got.causal,
                got.full_recompute,
                got.selective_recompute,
            ];
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got / expected - 1.0).abs() < 1e-6, "{got} {expected}");
            }
        }
    }
}
