//! `haul sample`.

use super::{Global, count, exit::Exit};
use crate::actions::sample::{self, Wish};
use crate::ui;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Command {
    /// Run: `last`, its id, or the start of it
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Text to go on from
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "\n",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count::<u64>, allow_negative_numbers = true)]
    tokens: u64,
    /// 0 takes the likeliest token always
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.8,
        allow_negative_numbers = true
    )]
    temperature: f64,
    /// Choose among the K likeliest tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = count::<u64>, allow_negative_numbers = true)]
    top_k: u64,
    /// The same seed writes the same text
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = count::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Use the checkpoint of this step [default: the newest]
    #[arg(long, value_name = "STEP", value_parser = count::<u64>, allow_negative_numbers = true)]
    checkpoint: Option<u64>,
}

impl Command {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        anyhow::ensure!(
            self.temperature.is_finite() && self.temperature >= 0.0,
            "--temperature {} is no temperature; give 0 or more, such as 0.8",
            self.temperature
        );
        let run = super::status::run(global, &self.run)?;
        let wish = Wish {
            prompt: self.prompt,
            tokens: self.tokens,
            temperature: self.temperature,
            top_k: self.top_k,
            seed: self.seed,
        };
        let mut tell = |words: &str| ui::say(words);
        let (at, text) = sample::sample(&run, self.checkpoint, &wish, global.json, &mut tell)?;
        if let Some(text) = text {
            let document = json!({
                "schema": "haul.sample/1",
                "run": run.id(),
                "checkpoint": at,
                "prompt": wish.prompt,
                "seed": wish.seed,
                "text": text,
            });
            ui::print(&format!("{document:#}\n"))?;
        }
        Ok(Exit::Done)
    }
}
