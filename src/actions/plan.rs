//! `haul plan`: what would run, on one page.

use crate::plan::{NODE_HOURS, Plan, Program, SchedulerKind};
use crate::recipe::scalar::show_duration;
use crate::ui::style::Style;
use crate::ui::units::{bytes, count, grouped, rate};
use haul_runtime::contract::config::ScheduleKind;
use haul_runtime::contract::{Precision, Until};

/// The page.
pub fn page(plan: &Plan, style: Style) -> String {
    let mut page = Page {
        text: String::new(),
        style,
    };
    let place = match plan.machine.scheduler {
        SchedulerKind::Local => "local scheduler".to_string(),
        SchedulerKind::Slurm => "Slurm".to_string(),
    };
    let confirmed = if plan.machine.confirmed {
        ""
    } else {
        ", profile not confirmed by a run"
    };
    page.title(&format!(
        "{} on {} ({place}{confirmed})",
        plan.name, plan.machine.profile
    ));
    if let Some(config) = &plan.train_config {
        let m = &config.model;
        let parameters = plan.flops.as_ref().map_or(String::new(), |f| {
            format!("{} parameters: ", count(f.parameters as f64))
        });
        page.row(
            "model",
            format!(
                "{parameters}{} layers, hidden {}, {} heads, ffn {}",
                m.layers, m.hidden, m.heads, m.ffn
            ),
        );
        page.row(
            "",
            format!(
                "sequences of {} tokens, vocabulary {}",
                grouped(m.seq_len as u64),
                grouped(m.vocab as u64)
            ),
        );
    }
    let mesh = &plan.mesh;
    page.row(
        "mesh",
        format!(
            "{} ranks = tensor {} x data {} x pipeline {}{}",
            mesh.world(),
            mesh.tensor,
            mesh.data,
            mesh.pipeline,
            plan.train_config
                .as_ref()
                .filter(|c| c.zero > 0)
                .map_or(String::new(), |c| format!(", ZeRO {}", c.zero)),
        ),
    );
    if let Some(config) = &plan.train_config {
        let b = &config.batch;
        page.row(
            "batch",
            format!(
                "{} sequences a step = micro {} x accumulation {} x data {}",
                grouped(b.global as u64),
                b.micro,
                b.accumulation,
                mesh.data
            ),
        );
        page.row(
            "",
            format!("{} tokens a step", grouped(config.tokens_per_step())),
        );
        training(&mut page, plan);
    }
    if let Some(flops) = &plan.flops {
        let tokens = flops.tokens_per_step as f64;
        page.row(
            "FLOPs",
            format!(
                "{} a step ({} with the causal half), {} a token",
                rate(flops.per_token * tokens, "FLOP"),
                rate(flops.per_token_causal * tokens, "FLOP"),
                rate(flops.per_token, "FLOP")
            ),
        );
    }
    memory(&mut page, plan);
    launched(&mut page, plan);
    page.row(
        "fingerprint",
        plan.fingerprint
            .get(..16)
            .unwrap_or(&plan.fingerprint)
            .to_string(),
    );
    page.text
}

fn training(page: &mut Page, plan: &Plan) {
    let Some(config) = &plan.train_config else {
        return;
    };
    let t = &config.train;
    let per_step = config.tokens_per_step().max(1);
    let until = match t.until {
        Until::Steps(steps) => format!(
            "{} steps, {} tokens",
            grouped(steps),
            count(steps as f64 * per_step as f64)
        ),
        Until::Tokens(tokens) => format!(
            "{} tokens, {} steps",
            count(tokens as f64),
            grouped(tokens.div_ceil(per_step))
        ),
        Until::Seconds(seconds) => format!("{} of training", show_duration(seconds as u64)),
    };
    let precision = match t.precision {
        Precision::F32 => "f32",
        Precision::F64 => "f64 (reference device)",
    };
    page.row("train", format!("{until}, {precision}, seed {}", t.seed));
    let s = &t.schedule;
    let shape = match s.kind {
        ScheduleKind::Constant => "constant".to_string(),
        ScheduleKind::Linear => {
            format!("linear to {} at step {}", s.min_lr, grouped(s.decay_steps))
        }
        ScheduleKind::Cosine => {
            format!("cosine to {} at step {}", s.min_lr, grouped(s.decay_steps))
        }
    };
    let warmup = if s.warmup > 0 {
        format!(", {} steps of warm-up", grouped(s.warmup))
    } else {
        String::new()
    };
    page.row("", format!("AdamW, lr {} {shape}{warmup}", t.optimizer.lr));
    page.row(
        "data",
        format!(
            "{}, {:.0} % held out",
            config.data.path,
            config.data.validation * 100.0
        ),
    );
}

fn memory(page: &mut Page, plan: &Plan) {
    for stage in &plan.memory {
        let head = if plan.memory.len() > 1 {
            format!("memory, stage {}", stage.stage)
        } else {
            "memory".into()
        };
        page.row(&head, format!("{:>10}  a rank", bytes(stage.total)));
        let mut classes: Vec<_> = stage
            .classes
            .iter()
            .filter(|(_, size)| **size > 0)
            .collect();
        classes.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (class, size) in classes {
            let share = *size as f64 / stage.total.max(1) as f64 * 100.0;
            page.row(
                "",
                format!("{:>10}  {class:10} {share:3.0} %", bytes(*size)),
            );
        }
    }
}

fn launched(page: &mut Page, plan: &Plan) {
    let job = &plan.job;
    let virtual_ = if plan.machine.scheduler == SchedulerKind::Local && job.nodes > 1 {
        "virtual "
    } else {
        ""
    };
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let shared = if plan.shared_cores {
        ", shared cores: no speed is reported"
    } else {
        ""
    };
    page.row(
        "job",
        format!(
            "{} {virtual_}node{} x {} rank{} x {} core{}{shared}",
            job.nodes,
            plural(job.nodes),
            job.ranks_per_node,
            plural(job.ranks_per_node),
            job.cores_per_rank,
            plural(job.cores_per_rank),
        ),
    );
    let limit = match (job.walltime_seconds, plan.cost.node_hours) {
        (Some(seconds), Some(hours)) => {
            let unit = plan
                .cost
                .charge
                .as_deref()
                .filter(|unit| *unit != NODE_HOURS);
            let charged = unit.zip(plan.cost.charged(hours));
            let charged = charged.map(|(unit, charged)| format!(" ({charged:.2} {unit})"));
            format!(
                "at most {}, {hours:.2} node-hours{} a job",
                show_duration(seconds),
                charged.unwrap_or_default()
            )
        }
        _ => "no time limit; how long it takes is unknown".into(),
    };
    page.row("", limit);
    let command = match &plan.program {
        Program::Bundled => "haul worker (the bundled trainer)".to_string(),
        Program::Command { command } => {
            let words: Vec<String> = command
                .iter()
                .map(|w| crate::render::quote::shell(w))
                .collect();
            words.join(" ").replace('\n', "\u{23ce}")
        }
    };
    page.row("runs", command);
    let saved = match &plan.checkpoint {
        None => "off".to_string(),
        Some(checkpoint) => {
            let every = match (checkpoint.every_steps, checkpoint.every_seconds) {
                (Some(steps), _) => format!("every {} steps", grouped(steps)),
                (None, Some(seconds)) => format!("every {}", show_duration(seconds as u64)),
                (None, None) => "at the end".into(),
            };
            format!("{every}, the newest {} kept", checkpoint.keep)
        }
    };
    page.row("checkpoints", saved);
}

struct Page {
    text: String,
    style: Style,
}

impl Page {
    fn title(&mut self, title: &str) {
        self.text
            .push_str(&format!("{}\n\n", self.style.bold(title)));
    }

    fn row(&mut self, head: &str, body: String) {
        let line = format!("  {}{body}", self.style.dim(&format!("{head:16}")));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}
