//! What records mean: a pure function of them, as text, HTML, Markdown and JSON.
//!
//! [`records`] reads a run directory and forgives what is missing or torn; [`summary`] turns records into figures;
//! [`document`] puts figures in order and words; the rest writes that document down.

pub mod accounting;
pub mod attempts;
pub mod compose;
pub mod document;
pub mod gaps;
pub mod html;
pub mod json;
pub mod ledger;
pub mod lineage;
pub mod loss;
pub mod markdown;
pub mod origin;
pub mod plot;
pub mod records;
pub mod setup;
pub mod speed;
pub mod steps;
pub mod summary;
pub mod text;

pub use records::Records;
pub use summary::Summary;

#[cfg(test)]
mod tests;
