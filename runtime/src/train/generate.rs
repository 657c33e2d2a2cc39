//! Continuing a text, token by token, with cached keys and values.

use super::weights;
use crate::blueprint::Decoder;
use crate::blueprint::program::Region;
use crate::device::{Device, DeviceError, Frame};
use crate::optim::philox::Stream;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Logits are divided by it; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest so many tokens; 0 is all.
    pub top_k: usize,
    pub seed: u64,
}

/// A model that continues one sequence.
pub struct Generator<'a> {
    decoder: &'a Decoder,
    device: &'a mut dyn Device,
    /// Tokens in the cache.
    seen: Vec<u32>,
    context: usize,
    logits: Vec<f64>,
}

impl<'a> Generator<'a> {
    /// `device` has the decoder's regions and the model's weights; `context` is the model's sequence length.
    pub fn new(decoder: &'a Decoder, device: &'a mut dyn Device, context: usize) -> Self {
        Generator {
            decoder,
            device,
            seen: Vec::new(),
            context,
            logits: Vec::new(),
        }
    }

    /// Logits of the token after `token`. A full context is begun anew with its newer half.
    pub fn feed(&mut self, token: u32) -> Result<&[f64], DeviceError> {
        if self.seen.len() == self.context {
            let keep = self.seen.split_off(self.context - self.context / 2);
            self.seen.clear();
            for token in keep {
                self.decode(token)?;
            }
        }
        self.decode(token)?;
        let at = &self.decoder.logits;
        self.logits = weights::read(self.device, at.region, at.offset, at.len);
        Ok(&self.logits)
    }

    fn decode(&mut self, token: u32) -> Result<(), DeviceError> {
        let position = self.seen.len() as u32;
        for (info, value) in [(&self.decoder.tokens, token), (&self.decoder.at, position)] {
            self.device
                .write(Region::Tokens, 4 * info.offset, &value.to_ne_bytes());
        }
        for step in &self.decoder.program.ops {
            self.device
                .launch(&self.decoder.program, &step.op, Frame::default())?;
        }
        self.seen.push(token);
        Ok(())
    }

    /// Continues `prompt` (which must not be empty) by `count` tokens, each handed to `emit` at once.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        choice: &Choice,
        mut emit: impl FnMut(u32),
    ) -> Result<(), DeviceError> {
        let random = Stream::new(choice.seed, "sample");
        for token in prompt {
            self.feed(*token)?;
        }
        for i in 0..count {
            let token = choose(&self.logits, choice, random.uniform_pair(i as u64)[0]);
            emit(token);
            if i + 1 < count {
                self.feed(token)?;
            }
        }
        Ok(())
    }
}

/// The token that `uniform` in (0, 1) picks. Of equal logits the lower token comes first.
fn choose(logits: &[f64], choice: &Choice, uniform: f64) -> u32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if choice.temperature <= 0.0 {
        return order.first().map_or(0, |best| *best as u32);
    }
    if choice.top_k > 0 {
        order.truncate(choice.top_k);
    }
    let best = order.first().map_or(0.0, |best| logits[*best]);
    let weight = |i: &usize| libm::exp((logits[*i] - best) / choice.temperature);
    let mut left = uniform * order.iter().map(weight).sum::<f64>();
    let picked = order.iter().find(|i| {
        left -= weight(i);
        left <= 0.0
    });
    picked.or(order.last()).map_or(0, |token| *token as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 4] = [0.0, 2.0, 1.0, -1.0];

    fn share(choice: &Choice, token: u32) -> f64 {
        let hits =
            (0..1000).filter(|i| choose(&LOGITS, choice, (f64::from(*i) + 0.5) / 1000.0) == token);
        hits.count() as f64 / 1000.0
    }

    #[test]
    fn tokens_come_with_their_probabilities() {
        let plain = Choice {
            temperature: 1.0,
            top_k: 0,
            seed: 0,
        };
        let sum: f64 = LOGITS.iter().map(|x| x.exp()).sum();
        for (token, logit) in LOGITS.iter().enumerate() {
            assert!((share(&plain, token as u32) - logit.exp() / sum).abs() < 2e-3);
        }
        let two = Choice { top_k: 2, ..plain };
        assert_eq!(share(&two, 1) + share(&two, 2), 1.0);
        let greedy = Choice {
            temperature: 0.0,
            ..plain
        };
        assert_eq!(share(&greedy, 1), 1.0);
        let hot = Choice {
            temperature: 100.0,
            ..plain
        };
        assert!((share(&hot, 3) - 0.25).abs() < 0.02);
    }
}
