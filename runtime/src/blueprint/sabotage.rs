//! Mistakes made on purpose, to show that comparisons notice them. Compiled always; never set from a recipe.

use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

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

impl FromStr for Sabotage {
    type Err = Error;

    /// By its name, such as `loss-scale`.
    fn from_str(name: &str) -> Result<Self, Error> {
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        Sabotage::deserialize(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_names() {
        assert_eq!("loss-scale".parse(), Ok(Sabotage::LossScale));
        let error = "other".parse::<Sabotage>().unwrap_err().to_string();
        assert!(error.contains("tie-after-reduce"), "{error}");
    }
}
