//! The order of an optimizer step as a list, and the check that it is sound.

use std::ops::Range;

/// One entry of a step. Chunks (parts of the model on a rank), slots and units are indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
    /// Puts micro-batch `micro` into `slot`.
    Load { micro: usize, slot: usize },
    Forward {
        chunk: usize,
        micro: usize,
        slot: usize,
    },
    Backward {
        chunk: usize,
        micro: usize,
        slot: usize,
    },
    /// Adds the input embedding's gradient to the tied parameter's, once.
    TieEmbeddings,
    /// Sums the gradients of these units over the data axis.
    Reduce { units: Range<usize> },
    /// Global gradient norm; decides whether the step counts.
    Norm,
    /// Optimizer on these units; gradients become 0.
    Update { units: Range<usize> },
    /// Agrees on what happens next and reports.
    Log,
}

/// What a schedule is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Micro-batches of one replica.
    pub accumulation: usize,
    pub units: usize,
    /// Data parallel degree.
    pub data: usize,
}

/// Facts that the check establishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Most micro-batches whose kept values live at one time: the slots to reserve.
    pub in_flight: usize,
}

/// The step of a rank that holds the whole model.
pub fn serial(shape: Shape) -> Vec<Do> {
    let (chunk, slot) = (0, 0);
    let mut list = Vec::with_capacity(3 * shape.accumulation + 5);
    for micro in 0..shape.accumulation {
        list.push(Do::Load { micro, slot });
        list.push(Do::Forward { chunk, micro, slot });
        list.push(Do::Backward { chunk, micro, slot });
    }
    let units = 0..shape.units;
    list.push(Do::TieEmbeddings);
    if shape.data > 1 {
        list.push(Do::Reduce {
            units: 0..shape.units,
        });
    }
    list.push(Do::Norm);
    list.push(Do::Update { units });
    list.push(Do::Log);
    list
}

/// Where a micro-batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Loaded(usize),
    Forwarded(usize),
    Done,
}

/// Runs the list symbolically: every micro-batch goes through load, forward and backward once, in index order, in a slot of its own;
/// each unit's gradient is complete, reduced where data parallel, measured and applied once, in this order.
pub fn check(list: &[Do], shape: Shape) -> Result<Facts, String> {
    let mut stages = vec![Stage::New; shape.accumulation];
    let mut next_backward = 0;
    let mut slots: Vec<bool> = Vec::new();
    let mut in_flight = 0;
    let (mut tied, mut normed, mut logged) = (false, false, false);
    let mut reduced = vec![shape.data == 1; shape.units];
    let mut updated = vec![false; shape.units];
    for (at, entry) in list.iter().enumerate() {
        let wrong = |why: &str| Err(format!("entry {at} ({entry:?}): {why}"));
        if logged {
            return wrong("follows the log");
        }
        match entry {
            Do::Load { micro, slot } => {
                if stages.get(*micro) != Some(&Stage::New) {
                    return wrong("not a new micro-batch");
                }
                slots.resize(slots.len().max(slot + 1), false);
                if std::mem::replace(&mut slots[*slot], true) {
                    return wrong("the slot is in use");
                }
                stages[*micro] = Stage::Loaded(*slot);
                in_flight = in_flight.max(slots.iter().filter(|s| **s).count());
            }
            Do::Forward { micro, slot, .. } => {
                if stages.get(*micro) != Some(&Stage::Loaded(*slot)) {
                    return wrong("the micro-batch is not loaded in this slot");
                }
                stages[*micro] = Stage::Forwarded(*slot);
            }
            Do::Backward { micro, slot, .. } => {
                if stages.get(*micro) != Some(&Stage::Forwarded(*slot)) || *micro != next_backward {
                    return wrong("backward out of order");
                }
                next_backward += 1;
                stages[*micro] = Stage::Done;
                slots[*slot] = false;
            }
            Do::TieEmbeddings => {
                if next_backward != shape.accumulation || std::mem::replace(&mut tied, true) {
                    return wrong("gradients are incomplete or already tied");
                }
            }
            Do::Reduce { units } => {
                for unit in units.clone() {
                    if !tied || normed || reduced.get(unit) != Some(&false) {
                        return wrong("reduced too early, too late or twice");
                    }
                    reduced[unit] = true;
                }
            }
            Do::Norm => {
                if !tied || reduced.contains(&false) || std::mem::replace(&mut normed, true) {
                    return wrong("gradients are not complete");
                }
            }
            Do::Update { units } => {
                for unit in units.clone() {
                    if !normed || updated.get(unit) != Some(&false) {
                        return wrong("updated too early or twice");
                    }
                    updated[unit] = true;
                }
            }
            Do::Log => logged = true,
        }
    }
    if !logged || updated.contains(&false) {
        return Err("the list ends before every unit is updated and the step is logged".to_owned());
    }
    Ok(Facts { in_flight })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        (1..33).flat_map(|accumulation| {
            [1, 2, 3].map(|data| Shape {
                accumulation,
                units: 4,
                data,
            })
        })
    }

    #[test]
    fn serial_lists_are_sound_and_need_one_slot() {
        for shape in shapes() {
            assert_eq!(
                check(&serial(shape), shape),
                Ok(Facts { in_flight: 1 }),
                "{shape:?}"
            );
        }
    }

    #[test]
    fn each_entry_is_needed_and_needed_once() {
        for shape in shapes().take(12) {
            let list = serial(shape);
            for at in 0..list.len() {
                let mut less = list.clone();
                let entry = less.remove(at);
                assert!(check(&less, shape).is_err(), "without {entry:?}");
                let mut twice = list.clone();
                twice.insert(at, entry.clone());
                assert!(check(&twice, shape).is_err(), "{entry:?} twice");
            }
        }
    }

    #[test]
    fn exchanged_neighbours_are_noticed() {
        let shape = Shape {
            accumulation: 2,
            units: 3,
            data: 2,
        };
        let list = serial(shape);
        for at in 0..list.len() - 1 {
            let mut swapped = list.clone();
            swapped.swap(at, at + 1);
            // A load may come before the backward pass of another micro-batch only in another slot.
            assert!(check(&swapped, shape).is_err(), "{at}");
        }
    }
}
