//! Initial weights: a pure function of (seed, canonical name, logical element), whatever the layout.

use super::philox::Stream;
use crate::blueprint::params::{Init, ParamSpec};

/// Values of elements `start .. start + out.len()` of a parameter.
pub fn fill(seed: u64, spec: &ParamSpec, start: usize, out: &mut [f64]) {
    let std = match spec.init {
        Init::Constant(value) => return out.fill(value),
        Init::Normal(std) => std,
    };
    let stream = Stream::new(seed, &spec.name);
    let mut at = start;
    let mut rest = out;
    while !rest.is_empty() {
        let pair = stream.normal_pair(at as u64 / 2);
        let from = at % 2;
        let n = (2 - from).min(rest.len());
        let (head, tail) = rest.split_at_mut(n);
        for (out, z) in head.iter_mut().zip(&pair[from..]) {
            *out = std * z;
        }
        rest = tail;
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::params::Params;
    use crate::contract::Model;

    #[test]
    fn any_piece_has_the_values_of_the_whole() {
        let params = Params::gpt(&Model {
            layers: 2,
            hidden: 8,
            heads: 2,
            ffn: 32,
            seq_len: 4,
            vocab: 11,
            norm_eps: 1e-5,
            init_std: 0.02,
        });
        let spec = params.get(params.layers[1].mlp_proj.0);
        let mut whole = vec![0.0; spec.len()];
        fill(3, spec, 0, &mut whole);
        for start in 0..9 {
            for len in 0..9 {
                let mut piece = vec![0.0; len];
                fill(3, spec, start, &mut piece);
                assert_eq!(piece, whole[start..start + len]);
            }
        }
        // 0.02 / sqrt(2 x 2 layers) = 0.01.
        let variance = whole.iter().map(|x| x * x).sum::<f64>() / whole.len() as f64;
        assert!((variance.sqrt() / 0.01 - 1.0).abs() < 0.2);
        let mut gain = vec![0.0; 8];
        fill(3, params.get(params.ln_f.0), 0, &mut gain);
        assert_eq!(gain, [1.0; 8]);
    }
}
