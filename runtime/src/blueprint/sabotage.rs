//! Mistakes made on purpose, to show that comparisons notice them. Compiled always; never set from a recipe.

use serde::{Deserialize, Serialize};

/// One mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sabotage {
    #[default]
    None,
    /// Losses are averaged over the rank's tokens instead of the global batch's.
    LossScale,
    /// Odd ranks drop their gradient of `h.0.ln_1.weight`.
    NormGradient,
    /// The input embedding's gradient is added twice.
    EmbedTwice,
    /// The head's unit (`ln_f`) is not reduced over the data axis.
    MissingReduce,
    /// The learning rate of the step before is used.
    LateLearningRate,
    /// Every replica reads the samples of replica 0.
    SameSamples,
    /// The input embedding's gradient is added after the reduction.
    TieAfterReduce,
}

impl Sabotage {
    /// All mistakes.
    pub const ALL: [Sabotage; 7] = [
        Sabotage::LossScale,
        Sabotage::NormGradient,
        Sabotage::EmbedTwice,
        Sabotage::MissingReduce,
        Sabotage::LateLearningRate,
        Sabotage::SameSamples,
        Sabotage::TieAfterReduce,
    ];
}
