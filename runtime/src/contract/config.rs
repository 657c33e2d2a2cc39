//! What a training run is: the part of a plan that the trainer reads. Everything is resolved, nothing optional has a default.

use super::mesh::Mesh;
use serde::{Deserialize, Serialize};

/// The whole configuration of the bundled trainer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    pub model: Model,
    pub batch: Batch,
    pub train: Train,
    pub data: Data,
    /// ZeRO stage of the data parallel axis, 0 to 3.
    pub zero: u8,
}

/// A GPT-2 style model: learned positions, LayerNorm, GELU (tanh), tied output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Transformer layers L.
    pub layers: usize,
    /// Width C.
    pub hidden: usize,
    /// Attention heads H; divides `hidden`.
    pub heads: usize,
    /// Width of the feed-forward layer, 4 C unless set.
    pub ffn: usize,
    /// Sequence length T in tokens.
    pub seq_len: usize,
    /// Vocabulary V in tokens, unpadded.
    pub vocab: usize,
    /// LayerNorm epsilon.
    pub norm_eps: f64,
    /// Standard deviation of the initial weights; residual outputs use `init_std / sqrt(2 L)`.
    pub init_std: f64,
}

/// Batch sizes, all in sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Sequences of one micro-batch on one rank.
    pub micro: usize,
    /// Micro-batches a replica runs before an optimizer step (gradient accumulation).
    pub accumulation: usize,
    /// Sequences of one optimizer step over all replicas: micro x accumulation x data.
    pub global: usize,
}

/// When training ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// After this many optimizer steps.
    Steps(u64),
    /// With the first step at which this many tokens are consumed.
    Tokens(u64),
    /// With the first step at which this many seconds of training have passed in all attempts.
    Seconds(f64),
}

/// Arithmetic of the trainer; see the precision table in ARCHITECTURE.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// The `cpu` device, f32 throughout.
    F32,
    /// The `reference` device, f64 and naive: for proofs, not for speed.
    F64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Train {
    pub until: Until,
    /// Seed of weights and sample order.
    pub seed: u64,
    pub precision: Precision,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    /// Steps at the start left out of speed figures.
    pub warmup_steps: u64,
    /// Evaluate on the held-out split each so many steps and after the last; 0 is never.
    pub eval_every: u64,
    /// Sequences of one evaluation, at most the held-out split.
    pub eval_sequences: usize,
}

/// AdamW as PyTorch defines it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Optimizer {
    /// Peak learning rate.
    pub lr: f64,
    pub betas: [f64; 2],
    /// Added to the root after bias correction.
    pub eps: f64,
    /// Decoupled decay of matrices; 1-D tensors are exempt.
    pub weight_decay: f64,
    /// Gradient clipping by global norm: factor min(1, clip / (norm + 1e-6)); 0 is off.
    pub clip: f64,
}

/// Learning rate over steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub kind: ScheduleKind,
    /// Steps of linear warm-up from 0.
    pub warmup: u64,
    /// Steps at which decay ends; the last step of the run unless set.
    pub decay_steps: u64,
    /// Learning rate at the end of decay.
    pub min_lr: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    Constant,
    Linear,
    Cosine,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// File of tokens; `{root}` at its start stands for the run root.
    pub path: String,
    pub format: DataFormat,
    /// Share of the sequences held out for evaluation, taken from the end of the file.
    pub validation: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataFormat {
    /// Each byte of the file is a token; vocabulary 256.
    Bytes,
}

/// What the worker reads of a plan; other keys are the orchestrator's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerPlan {
    pub train_config: TrainConfig,
    pub mesh: Mesh,
    /// Compute threads of one rank.
    pub threads: usize,
    /// More ranks than cores: waiting threads sleep at once.
    #[serde(default)]
    pub shared_cores: bool,
    /// Absent: checkpoints only when asked for.
    #[serde(default)]
    pub checkpoint: Option<CheckpointPolicy>,
    /// Fingerprint of the plan.
    pub fingerprint: String,
}

/// When a checkpoint is due, whichever is given, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    #[serde(default)]
    pub every_steps: Option<u64>,
    #[serde(default)]
    pub every_seconds: Option<f64>,
    /// Newest checkpoints of an attempt that are kept.
    pub keep: usize,
}

impl TrainConfig {
    /// Tokens of one optimizer step over all replicas.
    pub fn tokens_per_step(&self) -> u64 {
        (self.batch.global * self.model.seq_len) as u64
    }
}
