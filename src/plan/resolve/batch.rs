//! The batch: micro x accumulation x data = global.

use super::derive;
use super::layout::Layout;
use crate::recipe::Recipe;
use crate::recipe::batch::Size;
use crate::recipe::diagnostic::Diagnostic;
use crate::recipe::section::Notes;
use haul_runtime::contract::Batch;

/// `None`: no batch is given, or it is told what is wrong.
pub(super) fn resolve(recipe: &Recipe, layout: &Layout, notes: &mut Notes) -> Option<Batch> {
    let batch = &recipe.batch;
    let micro = batch.micro.value;
    let data = layout.mesh?.data as u64;
    let size = batch.size.as_ref()?;
    let accumulation = match size {
        Size::Accumulation(given) => given.value,
        Size::PerReplica(given) => {
            if given.value % micro != 0 {
                notes.faults.push(
                    Diagnostic::error(
                        "batch",
                        format!(
                            "micro = {micro} does not divide per_replica = {}",
                            given.value
                        ),
                    )
                    .at(given.at, "sequences of a replica")
                    .at(batch.micro.at, "in micro-batches of")
                    .help(format!(
                        "set per_replica: {}, or micro to a divisor of it",
                        given.value.div_ceil(micro) * micro
                    )),
                );
                return None;
            }
            given.value / micro
        }
        Size::Global(given) => {
            let unit = micro * data;
            if given.value % unit != 0 {
                notes.faults.push(
                    Diagnostic::error(
                        "batch",
                        format!(
                            "micro x data = {micro} x {data} = {unit} does not divide global = {}",
                            given.value
                        ),
                    )
                    .at(given.at, "sequences of a step")
                    .at(batch.micro.at, "in micro-batches of")
                    .help(format!(
                        "global = micro x accumulation x data: set global: {}, or another micro",
                        given.value.div_ceil(unit) * unit
                    )),
                );
                return None;
            }
            given.value / unit
        }
    };
    let per_replica = micro.checked_mul(accumulation);
    let Some(global) = per_replica
        .and_then(|p| p.checked_mul(data))
        .filter(|g| *g <= 1 << 40)
    else {
        notes.faults.push(
            Diagnostic::error(
                "batch",
                format!(
                    "a global batch of {micro} x {accumulation} x {data} sequences is too large"
                ),
            )
            .at(batch.at, "")
            .help("lower it"),
        );
        return None;
    };
    derive(notes, "batch.accumulation", accumulation);
    derive(notes, "batch.per_replica", micro * accumulation);
    derive(notes, "batch.global", global);
    Some(Batch {
        micro: micro as usize,
        accumulation: accumulation as usize,
        global: global as usize,
    })
}
