//! `haul worker`: the trainer itself, started by a shim or by `haul sample`.

use super::{Global, exit::Exit};
use clap::ValueEnum;
use haul_runtime::blueprint::Sabotage;
use haul_runtime::worker::{self, Mode, SampleArgs, WorkerArgs};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Command {
    #[arg(long, value_enum, default_value_t = Kind::Train)]
    mode: Kind,
    /// jobs/<slot>/plan.json
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Print the arena and how much the heap grew
    #[arg(long)]
    memory: bool,
    /// A mistake to make, by its name in the blueprint: for proofs that comparisons bite
    #[arg(long, hide = true, value_name = "NAME")]
    sabotage: Option<Sabotage>,
    /// Compute threads, where no plan says it
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Step whose gradients are written
    #[arg(long, default_value_t = 1)]
    step: u64,
    /// File the gradients are written to
    #[arg(long, default_value = "gradients.safetensors", value_name = "FILE")]
    out: PathBuf,
    /// Checkpoint directory to sample from
    #[arg(long, value_name = "DIR")]
    load: Option<PathBuf>,
    #[arg(long, default_value = "")]
    prompt: String,
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Train,
    Sample,
    Peak,
    DumpGradients,
}

impl Command {
    pub(super) fn run(self, _global: &Global) -> anyhow::Result<Exit> {
        let mode = match self.mode {
            Kind::Train => Mode::Train,
            Kind::Peak => Mode::Peak {
                threads: self.threads,
            },
            Kind::DumpGradients => Mode::DumpGradients {
                step: self.step,
                out: self.out,
            },
            Kind::Sample => Mode::Sample(SampleArgs {
                checkpoint: self.load.ok_or_else(|| {
                    anyhow::anyhow!("sampling needs a checkpoint: give --load DIR")
                })?,
                prompt: self.prompt,
                tokens: self.tokens,
                temperature: self.temperature,
                top_k: self.top_k,
                seed: self.seed,
                threads: self.threads,
            }),
        };
        let sabotage = self.sabotage.unwrap_or_default();
        let code = worker::main(&WorkerArgs {
            plan: self.plan,
            mode,
            memory: self.memory,
            sabotage,
        });
        Ok(Exit::Child(u8::try_from(code).unwrap_or(1)))
    }
}
