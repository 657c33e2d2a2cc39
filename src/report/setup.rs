//! How it was set up: model, layout, placement and binding, planned memory.

use super::records::Records;
use super::steps::Steps;
use crate::plan::{Binding, Plan, Program, StageMemory, placeholder};
use haul_runtime::contract::{Mesh, Precision, Until};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Setup {
    pub program: Option<String>,
    pub until: Option<String>,
    /// Steps of the whole run, where the plan gives them.
    pub steps_planned: Option<u64>,
    pub model: Option<ModelFacts>,
    pub layout: Option<Layout>,
    pub ranks: Vec<RankPlace>,
    pub memory: Vec<StageMemory>,
    /// Figures the trainer told in notes, the newest of each name; `rank` is left out.
    pub told: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelFacts {
    pub parameters: Option<u64>,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub seq_len: usize,
    pub vocab: usize,
    pub precision: Precision,
    pub zero: u8,
    pub micro: usize,
    pub accumulation: usize,
    pub global: usize,
    pub tokens_per_step: u64,
    pub flops_per_token: Option<f64>,
    pub flops_per_token_causal: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layout {
    pub machine: String,
    pub confirmed: bool,
    pub device: String,
    pub nodes: usize,
    pub ranks_per_node: usize,
    pub cores_per_rank: usize,
    pub threads: usize,
    pub world: usize,
    pub mesh: Mesh,
    pub shared_cores: bool,
    pub binding: Binding,
}

/// A rank of the head attempt: where it was put, which cores were asked for, which the kernel confirms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RankPlace {
    pub rank: usize,
    pub node: String,
    pub asked: Option<Vec<usize>>,
    pub proven: Option<Vec<usize>>,
}

impl RankPlace {
    /// Whether the proof agrees with the request; absent when one of them is unknown.
    pub fn agrees(&self) -> Option<bool> {
        Some(self.asked.as_ref()? == self.proven.as_ref()?)
    }
}

pub fn setup(records: &Records, head: Option<u32>, steps: &Steps) -> Setup {
    let plan = records.plan();
    let config = plan.and_then(|plan| plan.train_config.as_ref());
    let until = config.map(|config| config.train.until);
    Setup {
        program: plan.map(program),
        until: until.map(|until| match until {
            Until::Steps(n) => format!("{n} steps"),
            Until::Tokens(n) => format!("{} tokens", crate::ui::units::count(n as f64)),
            Until::Seconds(s) => format!("{} of training", crate::ui::units::duration(s)),
        }),
        steps_planned: until.and_then(|until| match until {
            Until::Steps(n) => Some(n),
            Until::Tokens(n) => Some(n.div_ceil(config?.tokens_per_step().max(1))),
            Until::Seconds(_) => None,
        }),
        model: plan.and_then(model),
        layout: plan.map(layout),
        ranks: ranks(records, head),
        memory: plan.map(|plan| plan.memory.clone()).unwrap_or_default(),
        told: steps
            .notes
            .iter()
            .filter_map(|(_, note)| note.values.as_ref())
            .flatten()
            .filter(|(name, _)| *name != "rank")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    }
}

fn program(plan: &Plan) -> String {
    match &plan.program {
        Program::Bundled => "bundled trainer".into(),
        Program::Command { command } => {
            let words: Vec<String> = command
                .iter()
                .map(|word| filled(&plan.values, word))
                .collect();
            words.join(" ")
        }
    }
}

/// `word` with the plan's values; what each attempt decides stays in braces.
fn filled(values: &BTreeMap<String, String>, word: &str) -> String {
    let value = |key: &str| {
        let value = values.get(key).cloned();
        Some(value.unwrap_or_else(|| format!("{{{key}}}")))
    };
    placeholder::fill(word, value).unwrap_or_else(|_| word.to_owned())
}

fn model(plan: &Plan) -> Option<ModelFacts> {
    let config = plan.train_config.as_ref()?;
    let flops = plan.flops.as_ref();
    Some(ModelFacts {
        parameters: flops.map(|f| f.parameters),
        layers: config.model.layers,
        hidden: config.model.hidden,
        heads: config.model.heads,
        seq_len: config.model.seq_len,
        vocab: config.model.vocab,
        precision: config.train.precision,
        zero: config.zero,
        micro: config.batch.micro,
        accumulation: config.batch.accumulation,
        global: config.batch.global,
        tokens_per_step: config.tokens_per_step(),
        flops_per_token: flops.map(|f| f.per_token),
        flops_per_token_causal: flops.map(|f| f.per_token_causal),
    })
}

fn layout(plan: &Plan) -> Layout {
    Layout {
        machine: plan.machine.profile.clone(),
        confirmed: plan.machine.confirmed,
        device: plan.machine.device.clone(),
        nodes: plan.job.nodes,
        ranks_per_node: plan.job.ranks_per_node,
        cores_per_rank: plan.job.cores_per_rank,
        threads: plan.threads,
        world: plan.world(),
        mesh: plan.mesh,
        shared_cores: plan.shared_cores,
        binding: plan.machine.binding,
    }
}

fn ranks(records: &Records, head: Option<u32>) -> Vec<RankPlace> {
    let Some(attempt) = head.and_then(|head| records.attempts.get(&head)) else {
        return Vec::new();
    };
    let mut ranks: BTreeMap<usize, RankPlace> = BTreeMap::new();
    for place in &attempt.placement {
        let rank = ranks.entry(place.rank).or_default();
        rank.rank = place.rank;
        rank.node.clone_from(&place.node);
        rank.asked.clone_from(&place.cores);
    }
    for bound in &attempt.bound {
        let rank = ranks.entry(bound.rank).or_default();
        rank.rank = bound.rank;
        if rank.node.is_empty() {
            rank.node.clone_from(&bound.node);
        }
        rank.asked = bound.asked.clone().or(rank.asked.take());
        rank.proven.clone_from(&bound.cores);
    }
    for rank in ranks.values_mut() {
        for cores in [&mut rank.asked, &mut rank.proven].into_iter().flatten() {
            cores.sort_unstable();
            cores.dedup();
        }
    }
    ranks.into_values().collect()
}

/// Cores as ranges: `0-3,8`.
pub fn ranges(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => parts.push((*core, *core)),
        }
    }
    let words = parts.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_with_the_values_of_its_plan() {
        let values = BTreeMap::from([("train.until.steps".into(), "30".into())]);
        let word = "--steps={train.until.steps}/{attempt} {{x}}";
        assert_eq!(filled(&values, word), "--steps=30/{attempt} {x}");
        assert_eq!(filled(&values, "a{b"), "a{b");
    }

    #[test]
    fn cores_are_written_as_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
