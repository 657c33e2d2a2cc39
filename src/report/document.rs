//! The report as a document: figures, tables and charts in order, in words; every form of the report is written from it.

use crate::ui::table::Table;

/// A report, ready to be written as text, HTML or Markdown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Name of the run.
    pub title: String,
    /// Run id.
    pub run: String,
    pub tone: Tone,
    /// One word for the state.
    pub state: String,
    /// The state in a sentence.
    pub words: String,
    /// Model, layout and machine in a few words each.
    pub tags: Vec<String>,
    /// The figures one looks for first.
    pub tiles: Vec<Figure>,
    /// What could not be read or does not fit together.
    pub warnings: Vec<String>,
    pub sections: Vec<Section>,
    /// (figure, what it means), for all figures that need it.
    pub definitions: Vec<(String, String)>,
    pub footer: String,
}

/// How the state of a run should strike the eye.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    #[default]
    Open,
}

/// A figure with its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figure {
    pub label: String,
    pub value: String,
    /// What belongs beside it, smaller.
    pub note: String,
    /// Its definition; empty for what its name says.
    pub means: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    /// Anchor in HTML.
    pub id: &'static str,
    pub title: &'static str,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Words(String),
    Figures(Vec<Figure>),
    Table(Table),
    Loss(LossChart),
    StepTimes(StepChart),
    Shares(Shares),
    /// Lines of a log.
    Log(Vec<String>),
}

/// Loss over steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LossChart {
    /// In parts between which no step is on record.
    pub train: Vec<Vec<(f64, f64)>>,
    pub validation: Vec<(f64, f64)>,
    pub abandoned: Vec<Vec<(f64, f64)>>,
    /// Of the loss; empty when unknown.
    pub unit: &'static str,
    /// (step, words).
    pub marks: Vec<(f64, String)>,
}

/// Seconds a step over steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepChart {
    pub points: Vec<(f64, f64)>,
    pub median: f64,
    pub p5: f64,
    pub p95: f64,
}

/// Parts of a whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shares {
    pub title: &'static str,
    /// What 100 % is.
    pub whole: String,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    pub label: String,
    pub seconds: f64,
    /// Absent for what is not part of the whole.
    pub share: Option<f64>,
    pub note: String,
    pub means: &'static str,
    /// Which of the ten colours.
    pub colour: usize,
}

impl Figure {
    pub fn new(label: &str, value: impl Into<String>) -> Figure {
        Figure {
            label: label.into(),
            value: value.into(),
            ..Figure::default()
        }
    }

    pub fn note(mut self, note: impl Into<String>) -> Figure {
        self.note = note.into();
        self
    }

    pub fn means(mut self, means: &'static str) -> Figure {
        self.means = means;
        self
    }
}

impl Shares {
    /// The parts as a table, for forms without charts.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&[self.title, ">time", ">share", "what it is"]);
        for part in &self.parts {
            table.row([
                part.label.clone(),
                crate::ui::units::duration(part.seconds),
                part.share.map_or("–".into(), crate::ui::units::percent),
                [part.means, &part.note]
                    .iter()
                    .filter(|words| !words.is_empty())
                    .copied()
                    .collect::<Vec<_>>()
                    .join("; "),
            ]);
        }
        table
    }
}
