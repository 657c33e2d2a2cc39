//! What cannot be trained, told all at once. Limits keep all later arithmetic inside 64 bits and plans small.

use crate::contract::{Mesh, TrainConfig, Until};

/// Something in a configuration that rules a run out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Dotted key, such as `model.heads`.
    pub field: String,
    /// What is wrong, lowercase, without a full stop.
    pub message: String,
    /// What to do.
    pub help: String,
}

const LATER: &str = "comes with a later version";

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: &str, message: String, help: &str) {
        self.0.push(Problem {
            field: field.to_owned(),
            message,
            help: help.to_owned(),
        });
    }

    fn range(&mut self, field: &str, value: usize, least: usize, most: usize) {
        if !(least..=most).contains(&value) {
            let help = format!("choose {least} to {most}");
            self.add(field, format!("{value} is out of range"), &help);
        }
    }

    fn real(&mut self, field: &str, value: f64, holds: bool, help: &str) {
        if !value.is_finite() || !holds {
            self.add(field, format!("{value} is out of range"), help);
        }
    }
}

/// All problems of a configuration on `rank` of `mesh`; empty when it can be planned.
pub fn check(cfg: &TrainConfig, mesh: &Mesh, rank: usize) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    model(&mut problems, cfg);
    parallel(&mut problems, cfg, mesh, rank);
    batch(&mut problems, cfg, mesh);
    train(&mut problems, cfg);
    data(&mut problems, cfg);
    problems.0
}

/// Problems of the model alone, all that sampling needs.
pub fn check_model(cfg: &TrainConfig) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    model(&mut problems, cfg);
    problems.0
}

fn model(p: &mut Problems, cfg: &TrainConfig) {
    let m = &cfg.model;
    p.range("model.layers", m.layers, 1, 1 << 12);
    p.range("model.hidden", m.hidden, 1, 1 << 18);
    p.range("model.heads", m.heads, 1, 1 << 18);
    p.range("model.ffn", m.ffn, 1, 1 << 20);
    p.range("model.seq_len", m.seq_len, 1, 1 << 20);
    p.range("model.vocab", m.vocab, 1, 1 << 24);
    if m.heads > 0 && !m.hidden.is_multiple_of(m.heads) {
        let message = format!("heads = {} does not divide hidden = {}", m.heads, m.hidden);
        let help = "choose a number of heads that divides `model.hidden`";
        p.add("model.heads", message, help);
    }
    let (eps, std) = (m.norm_eps, m.init_std);
    p.real(
        "model.norm_eps",
        eps,
        eps > 0.0,
        "choose a small number above 0, such as 1e-5",
    );
    p.real(
        "model.init_std",
        std,
        std >= 0.0,
        "choose a number from 0, such as 0.02",
    );
}

fn parallel(p: &mut Problems, cfg: &TrainConfig, mesh: &Mesh, rank: usize) {
    let degrees = [
        ("parallel.tensor", mesh.tensor),
        ("parallel.data", mesh.data),
        ("parallel.pipeline", mesh.pipeline),
    ];
    for (field, degree) in degrees {
        p.range(field, degree, 1, 1 << 16);
    }
    for (field, degree) in [degrees[0], degrees[2]] {
        if degree > 1 {
            let message = format!("a degree of {degree} {LATER}");
            p.add(field, message, "set it to 1; data parallel works now");
        }
    }
    let m = &cfg.model;
    for (field, what, size) in [
        ("model.heads", "heads", m.heads),
        ("model.ffn", "ffn", m.ffn),
    ] {
        if mesh.tensor > 1 && !size.is_multiple_of(mesh.tensor) {
            let message = format!(
                "{what} = {size} is not a multiple of tensor = {}",
                mesh.tensor
            );
            p.add(field, message, "choose a tensor degree that divides it");
        }
    }
    if mesh.pipeline > m.layers.max(1) {
        let message = format!("{} stages for {} layers", mesh.pipeline, m.layers);
        p.add(
            "parallel.pipeline",
            message,
            "choose at most one stage a layer",
        );
    }
    match cfg.zero {
        0 => {}
        1..=3 => {
            let message = format!("ZeRO stage {} {LATER}", cfg.zero);
            p.add("parallel.zero", message, "set it to 0");
        }
        other => {
            let message = format!("there is no ZeRO stage {other}");
            p.add("parallel.zero", message, "set it to 0");
        }
    }
    let world = [mesh.tensor, mesh.data, mesh.pipeline]
        .iter()
        .try_fold(1usize, |product, degree| product.checked_mul(*degree));
    if world.is_none_or(|world| world > 0 && rank >= world) {
        let message = format!("rank {rank} is not one of the ranks of this mesh");
        p.add(
            "parallel",
            message,
            "give as many ranks as tensor x data x pipeline",
        );
    }
}

fn batch(p: &mut Problems, cfg: &TrainConfig, mesh: &Mesh) {
    let b = &cfg.batch;
    p.range("batch.micro", b.micro, 1, 1 << 20);
    p.range("batch.accumulation", b.accumulation, 1, 1 << 16);
    let tokens = b.micro.checked_mul(cfg.model.seq_len);
    if tokens.is_none_or(|tokens| tokens > 1 << 22) {
        let message = format!(
            "a micro-batch of {} x {} tokens is more than 4 Mi",
            b.micro, cfg.model.seq_len
        );
        p.add(
            "batch.micro",
            message,
            "lower `batch.micro` and raise `batch.accumulation`",
        );
    }
    let global = b
        .micro
        .checked_mul(b.accumulation)
        .and_then(|n| n.checked_mul(mesh.data));
    if global != Some(b.global) {
        let message = format!(
            "global = {} is not micro x accumulation x data = {} x {} x {}",
            b.global, b.micro, b.accumulation, mesh.data
        );
        p.add(
            "batch.global",
            message,
            "set one of them so that the product holds",
        );
    }
}

fn train(p: &mut Problems, cfg: &TrainConfig) {
    let t = &cfg.train;
    match t.until {
        Until::Steps(n) | Until::Tokens(n) if n == 0 => {
            p.add(
                "train.until",
                "0 leaves nothing to do".into(),
                "choose at least 1",
            );
        }
        Until::Seconds(s) => {
            p.real("train.until", s, s > 0.0, "choose a time above 0");
        }
        Until::Steps(_) | Until::Tokens(_) => {}
    }
    let o = &t.optimizer;
    let from_0 = "choose a number from 0";
    p.real("train.optimizer.lr", o.lr, o.lr >= 0.0, from_0);
    for beta in o.betas {
        let holds = (0.0..1.0).contains(&beta);
        p.real(
            "train.optimizer.betas",
            beta,
            holds,
            "choose numbers from 0, below 1",
        );
    }
    p.real(
        "train.optimizer.eps",
        o.eps,
        o.eps > 0.0,
        "choose a small number above 0, such as 1e-8",
    );
    let wd = o.weight_decay;
    p.real("train.optimizer.weight_decay", wd, wd >= 0.0, from_0);
    p.real(
        "train.optimizer.clip",
        o.clip,
        o.clip >= 0.0,
        "choose a number above 0, or 0 for off",
    );
    let s = &t.schedule;
    let holds = (0.0..=o.lr.max(0.0)).contains(&s.min_lr);
    p.real(
        "train.schedule.min_lr",
        s.min_lr,
        holds,
        "choose 0 to `train.optimizer.lr`",
    );
    if t.eval_every > 0 {
        if t.eval_sequences == 0 {
            let message = "an evaluation of 0 sequences measures nothing".to_owned();
            p.add("train.eval_sequences", message, "choose at least 1");
        }
        if cfg.data.validation <= 0.0 {
            let message = "evaluation needs a held-out split".to_owned();
            let help = "set `data.validation`, such as 0.05, or `train.eval.every` to 0";
            p.add("data.validation", message, help);
        }
    }
}

fn data(p: &mut Problems, cfg: &TrainConfig) {
    let d = &cfg.data;
    if d.path.is_empty() || d.path.contains('\0') {
        p.add(
            "data.path",
            "no file is named".into(),
            "name the file of training tokens",
        );
    }
    let holds = (0.0..1.0).contains(&d.validation);
    p.real(
        "data.validation",
        d.validation,
        holds,
        "choose a share from 0, below 1",
    );
}
