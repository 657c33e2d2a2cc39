//! The registry of parameters: name, shape, seams and place of each; checkpoint, norm, init and update read the same table.

use crate::contract::{Axis, Model};
use std::ops::Range;

/// Elements to which each parameter and value is aligned.
pub const ALIGN: usize = 64;

/// `len` rounded up to [`ALIGN`].
pub fn align(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

/// Index of a parameter in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub usize);

/// How tensor parallel ranks divide a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// Every rank holds all of it.
    Whole,
    /// Cut along `dim`, which consists of `parts` (such as q, k, v), each divided evenly among the ranks;
    /// the last rank's share of a part may be short, and is padded in its own memory only.
    Dim { dim: usize, parts: Vec<usize> },
}

/// Which part of the model holds a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Used by the input embedding and by the output head.
    EmbedAndHead,
    Embed,
    Layer(usize),
    Head,
}

/// Initial values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    Constant(f64),
    /// Mean 0 and this standard deviation.
    Normal(f64),
}

/// One parameter, in its logical (unpadded, uncut) form.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamSpec {
    /// Canonical name, as in GPT-2 checkpoints; matrices are stored (out, in).
    pub name: String,
    pub shape: Vec<usize>,
    pub cut: Cut,
    pub owner: Owner,
    pub init: Init,
    /// Whether weight decay applies: matrices only.
    pub decay: bool,
    /// Factor on the learning rate.
    pub lr_mult: f32,
    /// Axis over which each rank's gradient is a partial sum even where the parameter is replicated.
    pub partial: Option<Axis>,
    /// Elements from the start of `Weights` and of `Grads`.
    pub offset: usize,
}

impl ParamSpec {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that rank `t` of `of` along the tensor axis holds: ranges of flat logical elements, in order. The one resharding function.
    pub fn slice(&self, t: usize, of: usize) -> Vec<Range<usize>> {
        let Cut::Dim { dim, parts } = &self.cut else {
            return std::iter::once(0..self.len()).collect();
        };
        let inner: usize = self.shape[dim + 1..].iter().product();
        let outer: usize = self.shape[..*dim].iter().product();
        let row = self.shape[*dim] * inner;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for o in 0..outer {
            let mut start = 0;
            for part in parts {
                let share = part.div_ceil(of);
                let from = start + (t * share).min(*part);
                let to = start + ((t + 1) * share).min(*part);
                let range = o * row + from * inner..o * row + to * inner;
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ if range.is_empty() => {}
                    _ => ranges.push(range),
                }
                start += part;
            }
        }
        ranges
    }
}

/// Parameters that are gathered, reduced and updated together: contiguous in `Weights` and `Grads`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub name: String,
    /// Indices of its parameters.
    pub params: Range<usize>,
    /// Elements of `Weights` and `Grads`.
    pub span: Range<usize>,
}

/// Handles of one layer's parameters.
#[derive(Debug, Clone, Copy)]
pub struct LayerParams {
    pub ln_1: (ParamId, ParamId),
    pub c_attn: (ParamId, ParamId),
    pub attn_proj: (ParamId, ParamId),
    pub ln_2: (ParamId, ParamId),
    pub c_fc: (ParamId, ParamId),
    pub mlp_proj: (ParamId, ParamId),
}

/// All parameters of a model with their places.
#[derive(Debug, Clone)]
pub struct Params {
    pub specs: Vec<ParamSpec>,
    pub units: Vec<Unit>,
    pub wte: ParamId,
    pub wpe: ParamId,
    pub layers: Vec<LayerParams>,
    pub ln_f: (ParamId, ParamId),
    /// Elements of `Weights`, padding included.
    pub extent: usize,
}

impl Params {
    /// The registry of a GPT-2 style model.
    pub fn gpt(model: &Model) -> Params {
        let (c, f) = (model.hidden, model.ffn);
        let std = model.init_std;
        // GPT-2 paper, section 2.3: weights of residual layers scaled by 1/sqrt(N), N residual layers.
        let residual = std / ((2 * model.layers) as f64).sqrt();
        let mut table = Table::default();
        let vocab = Cut::Dim {
            dim: 0,
            parts: vec![model.vocab],
        };
        table.unit("embed");
        let wte = table.add(
            Owner::EmbedAndHead,
            "wte.weight",
            &[model.vocab, c],
            vocab,
            Init::Normal(std),
        );
        let wpe = table.add(
            Owner::Embed,
            "wpe.weight",
            &[model.seq_len, c],
            Cut::Whole,
            Init::Normal(std),
        );
        let mut layers = Vec::with_capacity(model.layers);
        for i in 0..model.layers {
            table.unit(&format!("h.{i}"));
            let owner = Owner::Layer(i);
            let column = |parts: Vec<usize>| Cut::Dim { dim: 0, parts };
            let row = |width| Cut::Dim {
                dim: 1,
                parts: vec![width],
            };
            let ln_1 = table.norm(owner, &format!("h.{i}.ln_1"), c);
            let c_attn = table.linear(
                owner,
                &format!("h.{i}.attn.c_attn"),
                [3 * c, c],
                [column(vec![c; 3]), column(vec![c; 3])],
                std,
            );
            let attn_proj = table.linear(
                owner,
                &format!("h.{i}.attn.c_proj"),
                [c, c],
                [row(c), Cut::Whole],
                residual,
            );
            let ln_2 = table.norm(owner, &format!("h.{i}.ln_2"), c);
            let c_fc = table.linear(
                owner,
                &format!("h.{i}.mlp.c_fc"),
                [f, c],
                [column(vec![f]), column(vec![f])],
                std,
            );
            let mlp_proj = table.linear(
                owner,
                &format!("h.{i}.mlp.c_proj"),
                [c, f],
                [row(f), Cut::Whole],
                residual,
            );
            layers.push(LayerParams {
                ln_1,
                c_attn,
                attn_proj,
                ln_2,
                c_fc,
                mlp_proj,
            });
        }
        table.unit("head");
        let ln_f = table.norm(Owner::Head, "ln_f", c);
        Params {
            specs: table.specs,
            units: table.units,
            wte,
            wpe,
            layers,
            ln_f,
            extent: table.extent,
        }
    }

    /// The parameter behind a handle.
    pub fn get(&self, id: ParamId) -> &ParamSpec {
        &self.specs[id.0]
    }

    /// Number of parameters proper, padding and copies not counted.
    pub fn count(&self) -> usize {
        self.specs.iter().map(ParamSpec::len).sum()
    }
}

#[derive(Default)]
struct Table {
    specs: Vec<ParamSpec>,
    units: Vec<Unit>,
    extent: usize,
}

impl Table {
    fn unit(&mut self, name: &str) {
        let at = self.specs.len();
        self.units.push(Unit {
            name: name.to_owned(),
            params: at..at,
            span: self.extent..self.extent,
        });
    }

    fn add(&mut self, owner: Owner, name: &str, shape: &[usize], cut: Cut, init: Init) -> ParamId {
        let spec = ParamSpec {
            name: name.to_owned(),
            shape: shape.to_vec(),
            cut,
            owner,
            init,
            decay: shape.len() > 1,
            lr_mult: 1.0,
            partial: None,
            offset: self.extent,
        };
        self.extent += align(spec.len());
        self.specs.push(spec);
        if let Some(unit) = self.units.last_mut() {
            unit.params.end = self.specs.len();
            unit.span.end = self.extent;
        }
        ParamId(self.specs.len() - 1)
    }

    fn norm(&mut self, owner: Owner, name: &str, width: usize) -> (ParamId, ParamId) {
        let one = Init::Constant(1.0);
        let weight = self.add(owner, &format!("{name}.weight"), &[width], Cut::Whole, one);
        let zero = Init::Constant(0.0);
        let bias = self.add(owner, &format!("{name}.bias"), &[width], Cut::Whole, zero);
        (weight, bias)
    }

    fn linear(
        &mut self,
        owner: Owner,
        name: &str,
        shape: [usize; 2],
        [cut, bias_cut]: [Cut; 2],
        std: f64,
    ) -> (ParamId, ParamId) {
        let normal = Init::Normal(std);
        let weight = self.add(owner, &format!("{name}.weight"), &shape, cut, normal);
        let zero = Init::Constant(0.0);
        let bias = self.add(owner, &format!("{name}.bias"), &shape[..1], bias_cut, zero);
        (weight, bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(shape: Vec<usize>, cut: Cut) -> ParamSpec {
        ParamSpec {
            name: "p".into(),
            shape,
            cut,
            owner: Owner::Head,
            init: Init::Constant(0.0),
            decay: true,
            lr_mult: 1.0,
            partial: None,
            offset: 0,
        }
    }

    proptest! {
        #[test]
        fn slices_of_all_ranks_cover_each_element_once(
            outer in 1usize..4, inner in 1usize..5, parts in prop::collection::vec(0usize..9, 1..4), of in 1usize..9, dim in 0usize..2,
        ) {
            let cut = parts.iter().sum::<usize>();
            let shape = if dim == 0 { vec![cut, inner] } else { vec![outer, cut, inner] };
            let spec = spec(shape, Cut::Dim { dim, parts });
            let mut seen = vec![0u32; spec.len()];
            for t in 0..of {
                let mut end = 0;
                for range in spec.slice(t, of) {
                    prop_assert!(range.start >= end && !range.is_empty());
                    end = range.end;
                    seen[range].iter_mut().for_each(|s| *s += 1);
                }
            }
            prop_assert!(seen.iter().all(|s| *s == 1));
        }
    }

    #[test]
    fn query_key_and_value_are_each_cut() {
        let spec = spec(
            vec![12, 2],
            Cut::Dim {
                dim: 0,
                parts: vec![4; 3],
            },
        );
        assert_eq!(spec.slice(1, 2), [4..8, 12..16, 20..24]);
        assert_eq!(spec.slice(0, 1).first(), Some(&(0..24)));
    }

    #[test]
    fn registry_has_gpt2_names_shapes_and_count() {
        let model = Model {
            layers: 12,
            hidden: 768,
            heads: 12,
            ffn: 3072,
            seq_len: 1024,
            vocab: 50257,
            norm_eps: 1e-5,
            init_std: 0.02,
        };
        let params = Params::gpt(&model);
        // GPT-2 small, https://huggingface.co/openai-community/gpt2.
        assert_eq!(params.count(), 124_439_808);
        let fc = params.get(params.layers[3].c_fc.0);
        assert_eq!(
            (fc.name.as_str(), &fc.shape[..]),
            ("h.3.mlp.c_fc.weight", &[3072, 768][..])
        );
        let mut end = 0;
        for spec in &params.specs {
            assert_eq!(spec.offset % ALIGN, 0);
            assert!(spec.offset >= end);
            end = spec.offset + spec.len();
        }
        assert!(end <= params.extent);
        assert_eq!(params.units.len(), 14);
        assert_eq!(params.units[13].span.end, params.extent);
    }
}
