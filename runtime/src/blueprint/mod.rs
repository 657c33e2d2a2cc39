//! What a rank will do, as data: parameters, programs, schedule, memory, FLOPs. Pure: no I/O, no unsafe, no clock.

pub mod builder;
pub mod check;
pub mod decoder;
pub mod flops;
pub mod memory;
pub mod operands;
pub mod params;
pub mod program;
pub mod sabotage;
pub mod schedule;
#[cfg(test)]
mod tests;

pub use check::Problem;
pub use decoder::Decoder;
pub use sabotage::Sabotage;

use crate::contract::{Coord, Mesh, Precision, TrainConfig};
use crate::model::Emit;
use crate::model::embed::Inputs;
use crate::model::gpt::Gpt;
use builder::{Builder, Filled};
use flops::Flops;
use memory::{Bytes, Real, Sizes, validate};
use params::{ParamId, Params, align};
use program::{AdamScalars, Op, Program, SQUARES_BLOCK, Val, ValInfo};
use schedule::{Do, Shape};

/// A part of the model on one rank.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub forward: Program,
    pub backward: Program,
}

/// Values that the host reads or writes.
#[derive(Debug, Clone)]
pub struct Host {
    /// u32 \[N\] each: inputs, targets, positions, rows of the compact embedding gradient.
    pub tokens: ValInfo,
    pub targets: ValInfo,
    pub at: ValInfo,
    pub slots: ValInfo,
    /// u32: the distinct tokens of the rank's step, and \[1\] how many they are.
    pub ids: ValInfo,
    pub count: ValInfo,
    /// f64 \[1\]: sum of token losses of the step.
    pub loss: ValInfo,
    /// f64 \[1\]: sum of token losses of an evaluation.
    pub eval_loss: ValInfo,
    /// f64: see [`AdamScalars`].
    pub adam: ValInfo,
    /// f64: sums of squares of gradient blocks in (parameter, block) order; those of parameter i start at `block_starts[i]`.
    pub squares: ValInfo,
    pub block_starts: Vec<usize>,
}

/// Evaluation of some sequences: adds their losses to `eval_loss`.
#[derive(Debug, Clone)]
pub struct Evaluation {
    pub sequences: usize,
    pub program: Program,
}

/// Everything a rank will do in training, and what it takes.
#[derive(Debug, Clone)]
pub struct Blueprint {
    pub config: TrainConfig,
    pub mesh: Mesh,
    pub rank: usize,
    pub coord: Coord,
    pub real: Real,
    pub params: Params,
    pub chunks: Vec<Chunk>,
    /// Adds the input embedding's gradient to the tied parameter's.
    pub tie: Program,
    /// Sums of squares of all gradients.
    pub norm: Program,
    /// Optimizer on all parameters; operation i belongs to parameter i.
    pub update: Program,
    /// Gradients to 0, for a step that is skipped.
    pub clear: Program,
    /// By decreasing number of sequences, the last one of 1.
    pub evaluations: Vec<Evaluation>,
    /// One optimizer step.
    pub steps: Vec<Do>,
    pub sizes: Sizes,
    pub bytes: Bytes,
    /// Of one token.
    pub flops: Flops,
    pub host: Host,
    pub sabotage: Sabotage,
}

/// Element type of a precision.
pub fn real_of(precision: Precision) -> Real {
    match precision {
        Precision::F32 => Real::F32,
        Precision::F64 => Real::F64,
    }
}

/// The problem of a mistake in this program, not in the configuration.
fn internal(message: String) -> Vec<Problem> {
    vec![Problem {
        field: "model".to_owned(),
        message: format!("no sound plan was found for this model: {message}"),
        help: "this is a bug in haul; please report it with the recipe".to_owned(),
    }]
}

impl Blueprint {
    /// What `rank` of `mesh` does under `cfg`. Reserves nothing, so that any size can be planned anywhere.
    pub fn new(cfg: &TrainConfig, mesh: &Mesh, rank: usize) -> Result<Self, Vec<Problem>> {
        Self::with_sabotage(cfg, mesh, rank, Sabotage::None)
    }

    /// [`Blueprint::new`] with a mistake made on purpose.
    pub fn with_sabotage(
        cfg: &TrainConfig,
        mesh: &Mesh,
        rank: usize,
        sabotage: Sabotage,
    ) -> Result<Self, Vec<Problem>> {
        let problems = check::check(cfg, mesh, rank);
        if !problems.is_empty() {
            return Err(problems);
        }
        let shape = Shape {
            accumulation: cfg.batch.accumulation,
            units: cfg.model.layers + 2,
            data: mesh.data,
        };
        let mut steps = schedule::serial(shape);
        let facts = schedule::check(&steps, shape).map_err(internal)?;
        sabotage_steps(&mut steps, shape, sabotage);

        let params = Params::gpt(&cfg.model);
        let emission = emit(cfg, mesh, rank, &params, sabotage);
        let sizes = Sizes {
            weights: params.extent,
            grads: params.extent,
            moments: 2 * params.extent,
            kept: emission.filled.kept,
            work: emission.work,
            tokens: emission.filled.tokens,
            scalars: emission.filled.scalars,
            slots: facts.in_flight,
        };
        for (program, roots) in emission.programs() {
            validate(program, roots, &sizes, align(emission.filled.pinned))
                .map_err(|fault| internal(fault.to_string()))?;
        }
        let real = real_of(cfg.train.precision);
        Ok(Blueprint {
            config: cfg.clone(),
            mesh: *mesh,
            rank,
            coord: mesh.coord(rank),
            real,
            params,
            chunks: vec![emission.chunk],
            tie: emission.tie,
            norm: emission.norm,
            update: emission.update,
            clear: emission.clear,
            evaluations: emission.evaluations,
            steps,
            sizes,
            bytes: Bytes::of(&sizes, real),
            flops: Flops::of(&cfg.model),
            host: emission.host,
            sabotage,
        })
    }

    /// Global number, within the global batch, of sequence `j` of micro-batch `micro` on this rank:
    /// any split of the batch covers 0 .. global once.
    pub fn sequence(&self, micro: usize, j: usize) -> usize {
        let replica = match self.sabotage {
            Sabotage::SameSamples => 0,
            _ => self.coord.data,
        };
        (micro * self.mesh.data + replica) * self.config.batch.micro + j
    }
}

fn sabotage_steps(steps: &mut [Do], shape: Shape, sabotage: Sabotage) {
    for at in 0..steps.len() {
        match (sabotage, &mut steps[at]) {
            (Sabotage::MissingReduce, Do::Reduce { units }) => *units = 0..shape.units - 1,
            (Sabotage::TieAfterReduce, Do::Reduce { .. }) => return steps.swap(at - 1, at),
            _ => {}
        }
    }
}

/// What emission leaves behind, and the tables that validation needs.
struct Emission {
    chunk: Chunk,
    tie: Program,
    norm: Program,
    update: Program,
    clear: Program,
    evaluations: Vec<Evaluation>,
    host: Host,
    filled: Filled,
    work: usize,
    model_roots: Vec<Val>,
    eval_roots: Vec<Val>,
    step_roots: Vec<Val>,
}

impl Emission {
    fn programs(&self) -> impl Iterator<Item = (&Program, &[Val])> {
        let of_model = [&self.chunk.forward, &self.chunk.backward];
        let of_step = [&self.tie, &self.norm, &self.update, &self.clear];
        let evaluations = self.evaluations.iter().map(|e| &e.program);
        (of_model.into_iter().map(|p| (p, &self.model_roots[..])))
            .chain(of_step.into_iter().map(|p| (p, &self.step_roots[..])))
            .chain(evaluations.map(|p| (p, &self.eval_roots[..])))
    }
}

fn emit(
    cfg: &TrainConfig,
    mesh: &Mesh,
    rank: usize,
    params: &Params,
    sabotage: Sabotage,
) -> Emission {
    let (model, batch) = (&cfg.model, &cfg.batch);
    let rows = batch.micro * model.seq_len;
    let distinct = model.vocab.min(rows * batch.accumulation);
    let gpt = Gpt::new(model, params);
    let mut b = Builder::new(params, Filled::default());
    let [tokens, targets, at, slots] =
        ["tokens", "targets", "at", "slots"].map(|name| b.tokens(name, rows));
    let ids = b.tokens("ids", distinct);
    let count = b.tokens("count", 1);
    let loss = b.scalars("loss", 1);
    let eval_loss = b.scalars("eval_loss", 1);
    let adam = b.scalars("adam", AdamScalars::LEN);
    let mut block_starts = Vec::with_capacity(params.specs.len());
    let mut blocks = 0;
    for spec in &params.specs {
        block_starts.push(blocks);
        blocks += spec.len().div_ceil(SQUARES_BLOCK);
    }
    let squares = b.scalars("squares", blocks);
    let rows_grad = b.pinned("wte.rows_grad", distinct * model.hidden);
    let host = Host {
        tokens: b.info(tokens),
        targets: b.info(targets),
        at: b.info(at),
        slots: b.info(slots),
        ids: b.info(ids),
        count: b.info(count),
        loss: b.info(loss),
        eval_loss: b.info(eval_loss),
        adam: b.info(adam),
        squares: b.info(squares),
        block_starts,
    };
    let rows_grad_info = b.info(rows_grad);

    let expected = match sabotage {
        Sabotage::LossScale => rows * batch.accumulation,
        _ => batch.global * model.seq_len,
    };
    let mut e = Emit {
        b: &mut b,
        params,
        model,
        batch: batch.micro,
        seq: model.seq_len,
        keep: true,
        drop_norm_gradient: sabotage == Sabotage::NormGradient && mesh.coord(rank).data % 2 == 1,
        embed_twice: sabotage == Sabotage::EmbedTwice,
    };
    let scale = Some(1.0 / expected as f64);
    let saved = gpt.forward(&mut e, Inputs { tokens, at }, targets, loss, scale);
    let forward = e.b.finish();
    gpt.backward(&mut e, &saved, at, slots, rows_grad);
    let backward = e.b.finish();
    let (filled, mut work, model_roots) = (b.filled(), b.work(), b.roots());

    let mut b = Builder::new(params, filled);
    let mut evaluations = Vec::new();
    let sequences = std::collections::BTreeSet::from([batch.micro, 1]);
    for sequences in sequences.into_iter().rev() {
        let rows = sequences * model.seq_len;
        let [tokens, targets, at] = [&host.tokens, &host.targets, &host.at].map(|info| {
            let val = b.import(info);
            b.part(val, 0..rows)
        });
        let loss = b.import(&host.eval_loss);
        let mut e = Emit {
            b: &mut b,
            params,
            model,
            batch: sequences,
            seq: model.seq_len,
            keep: false,
            drop_norm_gradient: false,
            embed_twice: false,
        };
        gpt.forward(&mut e, Inputs { tokens, at }, targets, loss, None);
        let program = b.finish();
        evaluations.push(Evaluation { sequences, program });
    }
    work = work.max(b.work());
    let eval_roots = b.roots();

    let mut b = Builder::new(params, filled);
    let [ids, count] = [&host.ids, &host.count].map(|info| b.import(info));
    let rows_grad = b.import(&rows_grad_info);
    let op = Op::TieEmbeddings {
        ids,
        count,
        rows_grad,
        dtable: b.grad(params.wte),
        width: model.hidden,
    };
    b.emit("tie", op);
    let tie = b.finish();
    let (norm, update, clear) = step_programs(&mut b, params, &host);
    Emission {
        chunk: Chunk { forward, backward },
        tie,
        norm,
        update,
        clear,
        evaluations,
        filled,
        work: work.max(b.work()),
        model_roots,
        eval_roots,
        step_roots: b.roots(),
        host,
    }
}

/// Programs with one operation a parameter: sums of squares, update, clearing.
fn step_programs(b: &mut Builder<'_>, params: &Params, host: &Host) -> (Program, Program, Program) {
    let squares = b.import(&host.squares);
    for (i, spec) in params.specs.iter().enumerate() {
        let start = host.block_starts[i];
        let op = Op::SumSquares {
            x: b.grad(ParamId(i)),
            out: b.part(squares, start..start + spec.len().div_ceil(SQUARES_BLOCK)),
            len: spec.len(),
        };
        b.emit(&spec.name, op);
    }
    let norm = b.finish();
    let scalars = b.import(&host.adam);
    for (i, spec) in params.specs.iter().enumerate() {
        let id = ParamId(i);
        let op = Op::AdamW {
            p: b.weight(id),
            g: b.grad(id),
            m: b.moment(id, false),
            v: b.moment(id, true),
            scalars,
            len: spec.len(),
            decay: spec.decay,
            lr_mult: spec.lr_mult,
        };
        b.emit(&spec.name, op);
    }
    let update = b.finish();
    for (i, spec) in params.specs.iter().enumerate() {
        let op = Op::Zero {
            x: b.grad(ParamId(i)),
            len: spec.len(),
        };
        b.emit(&spec.name, op);
    }
    (norm, update, b.finish())
}
