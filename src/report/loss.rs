//! The loss over steps: training and validation of the valid lineage, and what was abandoned.

use super::lineage::Lineage;
use super::records::Records;
use super::steps::Steps;
use haul_runtime::contract::config::DataFormat;
use serde::Serialize;

/// Losses as reported: nats a token by the bundled trainer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Loss {
    /// (step, loss) by ascending step.
    pub train: Vec<(u64, f64)>,
    pub validation: Vec<(u64, f64)>,
    /// Curves of steps that were lost, one an attempt.
    pub abandoned: Vec<Vec<(u64, f64)>>,
    /// (attempt, step it went on from).
    pub resumes: Vec<(u32, u64)>,
    /// (step, loss) of the first valid step that is known, which need not be step 1.
    #[serde(serialize_with = "value")]
    pub first_train: Option<(u64, f64)>,
    pub last_train: Option<f64>,
    pub last_validation: Option<f64>,
    /// (step, loss).
    pub best_validation: Option<(u64, f64)>,
    /// Nats a token, since the bundled trainer says so; what another program reports is unknown.
    pub nats: bool,
    /// A token is a byte.
    pub bytes: bool,
    /// loss / ln 2 of the last validation, or of the last step without one; byte models only.
    pub bits_per_byte: Option<f64>,
    /// exp(loss) of the same, where the loss is in nats; per byte for byte models.
    pub perplexity: Option<f64>,
    /// Valid steps whose loss is not a finite number.
    pub not_finite: usize,
}

/// The loss alone.
fn value<S: serde::Serializer>(point: &Option<(u64, f64)>, to: S) -> Result<S::Ok, S::Error> {
    point.map(|(_, loss)| loss).serialize(to)
}

pub fn loss(records: &Records, lineage: &Lineage, steps: &Steps) -> Loss {
    let mut loss = Loss {
        resumes: lineage.resumes().collect(),
        ..Loss::default()
    };
    for step in steps.kept() {
        match step.line.loss {
            Some(value) if value.is_finite() => loss.train.push((step.step, value)),
            Some(_) => loss.not_finite += 1,
            // JSON knows no NaN: the bits tell what a null loss was.
            None => loss.not_finite += usize::from(step.line.loss_bits.is_some()),
        }
    }
    for mark in steps.evaluations.iter().filter(|mark| mark.kept) {
        if let Some(value) = mark.line.loss.filter(|v| v.is_finite()) {
            loss.validation.push((mark.step, value));
        }
    }
    loss.train.sort_by_key(|(step, _)| *step);
    loss.validation.sort_by_key(|(step, _)| *step);
    for attempt in records.attempts.keys() {
        let lost: Vec<(u64, f64)> = steps
            .steps
            .iter()
            .filter(|s| s.attempt == *attempt && !s.kept)
            .filter_map(|s| Some((s.step, s.line.loss.filter(|v| v.is_finite())?)))
            .collect();
        if !lost.is_empty() {
            loss.abandoned.push(lost);
        }
    }
    loss.first_train = loss.train.first().copied();
    loss.last_train = loss.train.last().map(|p| p.1);
    loss.last_validation = loss.validation.last().map(|p| p.1);
    loss.best_validation = loss
        .validation
        .iter()
        .copied()
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let config = records.plan().and_then(|plan| plan.train_config.as_ref());
    loss.nats = config.is_some();
    loss.bytes = config.is_some_and(|config| config.data.format == DataFormat::Bytes);
    let last = loss.last_validation.or(loss.last_train);
    loss.perplexity = last
        .filter(|_| loss.nats)
        .map(f64::exp)
        .filter(|p| p.is_finite());
    loss.bits_per_byte = last
        .filter(|_| loss.bytes)
        .map(|nats| nats / std::f64::consts::LN_2);
    loss
}
