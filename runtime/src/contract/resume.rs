//! Which checkpoint a run continues from, and whether a plan may continue from it. Pure.

use super::checkpoint::{Point, TrainerState};
use super::{Mesh, TrainConfig};

/// The part of an attempt's checkpoints that belongs to a lineage: those up to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ancestor {
    pub attempt: u32,
    /// The step at which the next attempt of the lineage branched off; none for the head itself.
    pub until: Option<u64>,
}

/// The head attempt and its ancestors, newest first. `parent` tells from which checkpoint an attempt started.
///
/// Attempts form a tree; what another branch wrote, or this one after the point that was continued from, is not of the lineage.
pub fn lineage(head: u32, parent: impl Fn(u32) -> Option<Point>) -> Vec<Ancestor> {
    let mut chain = vec![Ancestor {
        attempt: head,
        until: None,
    }];
    let mut at = head;
    while let Some(from) = parent(at) {
        // An attempt can only start from an earlier one: anything else is a damaged record, and ends the chain.
        if from.attempt >= at {
            break;
        }
        chain.push(Ancestor {
            attempt: from.attempt,
            until: Some(from.step),
        });
        at = from.attempt;
    }
    chain
}

/// The candidates that are of the lineage and not marked bad, newest first: the first whose files are whole is the one to continue from.
pub fn newest(candidates: &[Point], lineage: &[Ancestor], bad: &[Point]) -> Vec<Point> {
    let of_lineage = |point: &Point| {
        let ancestor = lineage.iter().find(|a| a.attempt == point.attempt);
        ancestor.is_some_and(|a| a.until.is_none_or(|until| point.step <= until))
    };
    let mut valid: Vec<Point> = candidates
        .iter()
        .copied()
        .filter(|point| of_lineage(point) && !bad.contains(point))
        .collect();
    valid.sort_unstable_by_key(|point| std::cmp::Reverse((point.step, point.attempt)));
    valid.dedup();
    valid
}

/// What a difference between a plan and a checkpoint means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The run can't continue as what it was.
    Refused,
    /// Allowed, and said.
    Told,
}

/// A difference between a plan and a checkpoint, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub weight: Weight,
    pub text: String,
}

/// What a plan is about to continue with.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    pub config: &'a TrainConfig,
    pub mesh: Mesh,
    pub isa: &'a str,
    /// Fingerprint of the data.
    pub data: &'a str,
}

/// All differences between a checkpoint and the plan that wants to continue from it.
pub fn differences(saved: &TrainerState, now: &Now<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    let (was, is) = (&saved.config, now.config);
    let mut compare = |weight, what: &str, was: String, is: String| {
        if was != is {
            let text = format!("{what} is {is}, the checkpoint has {was}");
            found.push(Difference { weight, text });
        }
    };
    macro_rules! compare {
        ($weight:expr, $($field:ident).+) => {
            compare($weight, stringify!($($field).+), format!("{:?}", was.$($field).+), format!("{:?}", is.$($field).+))
        };
    }
    compare!(Weight::Refused, model.layers);
    compare!(Weight::Refused, model.hidden);
    compare!(Weight::Refused, model.heads);
    compare!(Weight::Refused, model.ffn);
    compare!(Weight::Refused, model.vocab);
    compare!(Weight::Refused, model.seq_len);
    compare!(Weight::Refused, model.norm_eps);
    compare!(Weight::Refused, train.seed);
    compare!(Weight::Refused, train.precision);
    compare!(Weight::Told, batch);
    compare!(Weight::Told, zero);
    compare!(Weight::Told, train.until);
    compare!(Weight::Told, train.optimizer);
    compare!(Weight::Told, train.schedule);
    let debug = |mesh: Mesh| format!("{mesh:?}");
    compare(Weight::Told, "mesh", debug(saved.mesh), debug(now.mesh));
    let isa = "instruction set (results are not equal to the bit)";
    compare(Weight::Told, isa, saved.isa.clone(), now.isa.into());
    if saved.data != now.data {
        found.extend(data_differences(&saved.data, now.data));
    }
    found
}

/// Names the fields `key=value` in which two data fingerprints differ.
fn data_differences(was: &str, is: &str) -> Vec<Difference> {
    let fields = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let (was, is) = (fields(was), fields(is));
    let pairs = was.iter().zip(&is).filter(|(a, b)| a != b);
    let mut texts: Vec<String> = pairs
        .map(|(a, b)| format!("data has {b}, the checkpoint has {a}"))
        .collect();
    if texts.is_empty() {
        texts.push("data is described differently by the checkpoint".into());
    }
    let refuse = |text| Difference {
        weight: Weight::Refused,
        text,
    };
    texts.into_iter().map(refuse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::config::{DataFormat, ScheduleKind};
    use crate::contract::*;

    fn point(attempt: u32, step: u64) -> Point {
        Point { attempt, step }
    }

    /// 1 ── 2 (from 1 at 20) ── 4 (from 2 at 40); 3 also from 1 at 30: another branch.
    fn parent(attempt: u32) -> Option<Point> {
        match attempt {
            2 => Some(point(1, 20)),
            3 => Some(point(1, 30)),
            4 => Some(point(2, 40)),
            // A damaged record.
            9 => Some(point(9, 10)),
            _ => None,
        }
    }

    const ALL: [(u32, u64); 10] = [
        (1, 10),
        (1, 20),
        (1, 30),
        (2, 30),
        (2, 40),
        (2, 50),
        (3, 40),
        (3, 90),
        (4, 50),
        (4, 60),
    ];

    fn search(head: u32, bad: &[Point]) -> Vec<(u32, u64)> {
        let all: Vec<Point> = ALL.iter().map(|&(a, s)| point(a, s)).collect();
        let found = newest(&all, &lineage(head, parent), bad);
        found.iter().map(|p| (p.attempt, p.step)).collect()
    }

    #[test]
    fn only_ancestors_of_the_head_are_valid() {
        let four = [(4, 60), (4, 50), (2, 40), (2, 30), (1, 20), (1, 10)];
        assert_eq!(search(4, &[]), four);
        assert_eq!(
            search(3, &[]),
            [(3, 90), (3, 40), (1, 30), (1, 20), (1, 10)]
        );
        assert_eq!(search(1, &[]), [(1, 30), (1, 20), (1, 10)]);
        // An attempt that has saved nothing still has ancestors; an unknown one has none.
        assert_eq!(search(7, &[]), []);
    }

    #[test]
    fn bad_ones_are_passed_over_and_cycles_end() {
        let bad = [point(4, 60), point(2, 40), point(2, 50)];
        assert_eq!(search(4, &bad), [(4, 50), (2, 30), (1, 20), (1, 10)]);
        let all: Vec<Point> = ALL.iter().map(|&(a, s)| point(a, s)).collect();
        assert_eq!(newest(&all, &lineage(4, parent), &all), []);
        assert_eq!(lineage(9, parent).len(), 1);
    }

    fn config() -> TrainConfig {
        TrainConfig {
            model: Model {
                layers: 2,
                hidden: 8,
                heads: 2,
                ffn: 32,
                seq_len: 4,
                vocab: 256,
                norm_eps: 1e-5,
                init_std: 0.02,
            },
            batch: Batch {
                micro: 1,
                accumulation: 2,
                global: 4,
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
                warmup_steps: 1,
                eval_every: 5,
                eval_sequences: 2,
            },
            data: Data {
                path: "a.txt".into(),
                format: DataFormat::Bytes,
                validation: 0.1,
            },
            zero: 0,
        }
    }

    type Change = fn(&mut TrainConfig);

    #[test]
    fn each_disagreement_has_its_weight_and_names_both_values() {
        let state = TrainerState {
            config: config(),
            mesh: Mesh::SERIAL,
            precision: Precision::F32,
            isa: "avx2".into(),
            applied: 5,
            consumed: 20,
            trained_seconds: 1.0,
            data: "blake3=aa bytes=9 seed=1".into(),
        };
        let look = |config: &TrainConfig, mesh, isa, data| {
            differences(
                &state,
                &Now {
                    config,
                    mesh,
                    isa,
                    data,
                },
            )
        };
        let changed = |change: Change| {
            let mut now = config();
            change(&mut now);
            look(&now, Mesh::SERIAL, "avx2", &state.data)
        };
        assert_eq!(changed(|_| ()), []);
        // A moved file, other evaluations: no matter.
        assert_eq!(
            changed(|c| {
                c.data.path = "b.txt".into();
                c.train.eval_every = 1;
            }),
            []
        );
        let refused: [Change; 4] = [
            |c| c.model.hidden = 16,
            |c| c.model.seq_len = 8,
            |c| c.train.seed = 2,
            |c| c.train.precision = Precision::F64,
        ];
        for change in refused {
            let found = changed(change);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].weight, Weight::Refused);
        }
        assert_eq!(
            changed(|c| c.model.hidden = 16)[0].text,
            "model.hidden is 16, the checkpoint has 8"
        );
        let told: [Change; 3] = [
            |c| c.train.optimizer.lr = 1.0,
            |c| c.train.until = Until::Steps(20),
            |c| c.batch.micro = 2,
        ];
        for change in told {
            let found = changed(change);
            assert_eq!((found.len(), found[0].weight), (1, Weight::Told));
        }
        let found = look(
            &config(),
            Mesh::SERIAL,
            "avx512",
            "blake3=bb bytes=9 seed=1",
        );
        assert_eq!(found[0].weight, Weight::Told);
        assert_eq!(
            (found[1].weight, found[1].text.as_str()),
            (
                Weight::Refused,
                "data has blake3=bb, the checkpoint has blake3=aa"
            )
        );
    }
}
