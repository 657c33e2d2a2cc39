//! Blueprints: built or refused, never a panic; exact in memory.

use super::*;
use crate::contract::config::{DataFormat, Optimizer, Schedule, ScheduleKind};
use crate::contract::{Batch, Data, Model, Train, Until};
use proptest::prelude::*;

fn config(model: Model, micro: usize, accumulation: usize, data: usize) -> TrainConfig {
    TrainConfig {
        model,
        batch: Batch {
            micro,
            accumulation,
            global: micro * accumulation * data,
        },
        train: Train {
            until: Until::Steps(10),
            seed: 1,
            precision: Precision::F32,
            optimizer: Optimizer {
                lr: 1e-3,
                betas: [0.9, 0.95],
                eps: 1e-8,
                weight_decay: 0.1,
                clip: 1.0,
            },
            schedule: Schedule {
                kind: ScheduleKind::Cosine,
                warmup: 2,
                decay_steps: 10,
                min_lr: 1e-4,
            },
            warmup_steps: 0,
            eval_every: 0,
            eval_sequences: 0,
        },
        data: Data {
            path: "text".into(),
            format: DataFormat::Bytes,
            validation: 0.0,
        },
        zero: 0,
    }
}

fn model(layers: usize, hidden: usize, heads: usize, seq_len: usize, vocab: usize) -> Model {
    Model {
        layers,
        hidden,
        heads,
        ffn: 4 * hidden,
        seq_len,
        vocab,
        norm_eps: 1e-5,
        init_std: 0.02,
    }
}

fn data_mesh(data: usize) -> Mesh {
    Mesh {
        data,
        ..Mesh::SERIAL
    }
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 1usize..9,
        4 => (0u32..12).prop_map(|e| 1usize << e),
        1 => any::<usize>(),
        1 => Just(0usize),
    ]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![6 => 0.0..1.0, 1 => any::<f64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_global_rejects: 0, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration_is_built_or_refused(
        sizes in prop::array::uniform6(size()),
        batch in prop::array::uniform2(size()),
        mesh in prop::array::uniform3(prop_oneof![6 => Just(1usize), 2 => 1usize..5, 1 => any::<usize>()]),
        global in prop_oneof![4 => Just(None), 1 => size().prop_map(Some)],
        (zero, rank, until) in (prop_oneof![9 => Just(0u8), 1 => any::<u8>()], prop_oneof![9 => Just(0usize), 1 => any::<usize>()], any::<u64>()),
        reals in prop::array::uniform8(real()),
        (warmup, decay, eval) in (0u64..20, 0u64..40, 0u64..3),
    ) {
        let [layers, heads, width, ffn, seq_len, vocab] = sizes;
        let [tensor, data, pipeline] = mesh;
        // Hidden is mostly a multiple of heads.
        let hidden = heads.wrapping_mul(width);
        let mut cfg = config(model(1, 1, 1, 1, 1), 1, 1, 1);
        cfg.model = Model { layers, hidden, heads, ffn, seq_len, vocab, norm_eps: reals[0], init_std: reals[1] };
        let [micro, accumulation] = batch;
        cfg.batch = Batch {
            micro,
            accumulation,
            global: global.unwrap_or(micro.wrapping_mul(accumulation).wrapping_mul(data)),
        };
        cfg.train.optimizer = Optimizer {
            lr: reals[2], betas: [reals[3], reals[4]], eps: reals[5], weight_decay: reals[6], clip: reals[7],
        };
        cfg.train.until = Until::Steps(until);
        cfg.train.schedule = Schedule { kind: ScheduleKind::Linear, warmup, decay_steps: decay, min_lr: 0.0 };
        cfg.train.eval_every = eval;
        cfg.train.eval_sequences = eval as usize;
        cfg.zero = zero;
        match Blueprint::new(&cfg, &Mesh { tensor, data, pipeline }, rank) {
            Ok(b) => {
                prop_assert_eq!((tensor, pipeline, zero), (1, 1, 0));
                prop_assert!(b.sizes.weights >= b.params.count());
                prop_assert_eq!(b.bytes, Bytes::of(&b.sizes, b.real));
            }
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                for p in &problems {
                    prop_assert!(!p.message.contains("no sound plan"), "{:?}", p);
                    prop_assert!(!p.help.is_empty() && !p.field.is_empty());
                }
            }
        }
    }
}

#[test]
fn other_degrees_are_refused_by_name() {
    let cfg = config(model(2, 8, 2, 8, 16), 2, 1, 1);
    let fields = |mesh: Mesh, zero| {
        let cfg = TrainConfig {
            zero,
            ..cfg.clone()
        };
        let problems = Blueprint::new(&cfg, &mesh, 0).unwrap_err();
        problems
            .into_iter()
            .map(|p| (p.field, p.message))
            .collect::<Vec<_>>()
    };
    let mesh = Mesh {
        tensor: 2,
        pipeline: 2,
        data: 1,
    };
    let got = fields(mesh, 1);
    for (field, degree) in [
        ("parallel.tensor", "2"),
        ("parallel.pipeline", "2"),
        ("parallel.zero", "1"),
    ] {
        let (_, message) = got.iter().find(|(f, _)| f == field).unwrap();
        assert!(message.contains(degree) && message.ends_with("comes with a later version"));
    }
}

#[test]
fn a_step_of_the_30m_model_fits_in_a_gigabyte() {
    let cfg = config(model(6, 384, 6, 256, 50304), 8, 1, 1);
    let b = Blueprint::new(&cfg, &Mesh::SERIAL, 0).unwrap();
    assert!(b.bytes.total() < 950_000_000, "{:?}", b.bytes);
    assert_eq!(b.bytes.optimizer, 2 * b.bytes.weights);
}

#[test]
fn gpt3_sized_models_are_planned_without_memory() {
    let cfg = config(model(96, 12288, 96, 2048, 51200), 1, 2, 8);
    let b = Blueprint::new(&cfg, &data_mesh(8), 5).unwrap();
    let (l, h) = (96, 12288);
    let expected = 12 * l * h * h + 13 * l * h + 51200 * h + 2048 * h + 2 * h;
    assert_eq!(b.params.count(), expected);
}

#[test]
fn any_split_of_a_batch_reads_each_sequence_once() {
    for (micro, accumulation, data) in [(12, 1, 1), (1, 12, 1), (2, 3, 2), (1, 3, 4), (3, 1, 4)] {
        let cfg = config(model(1, 4, 1, 4, 8), micro, accumulation, data);
        let mut seen = vec![0; 12];
        for rank in 0..data {
            let b = Blueprint::new(&cfg, &data_mesh(data), rank).unwrap();
            for m in 0..accumulation {
                (0..micro).for_each(|j| seen[b.sequence(m, j)] += 1);
            }
        }
        assert_eq!(seen, [1; 12]);
    }
}
