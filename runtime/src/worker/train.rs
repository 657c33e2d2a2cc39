//! Training under the contract: join the group, continue or begin, run, report.

use super::control::Control;
use super::device::{self, Opened};
use super::surroundings::Surroundings;
use super::{WorkerArgs, WorkerError};
use crate::blueprint::Blueprint;
use crate::checkpoint::CheckpointError;
use crate::comm::{Comm, Options, Spec, local, shm, tcp};
use crate::contract::checkpoint::Point;
use crate::contract::config::WorkerPlan;
use crate::contract::metrics::{Kind, Line};
use crate::contract::resume::{Now, Weight, differences};
use crate::contract::{env, exit};
use crate::data::{Dataset, Split};
use crate::sys::heap;
use crate::train::keep::{About, Checkpoints};
use crate::train::report::Report;
use crate::train::run::{End, Every, Keeper, Keepless, Plan, run as run_steps};
use crate::train::{TrainError, Trainer};
use std::path::Path;

/// What both training and dumping need, made in this order: nothing is reserved before all is known to be sound.
pub(super) struct Parts {
    pub(super) blueprint: Blueprint,
    pub(super) data: Dataset,
    pub(super) comm: Box<dyn Comm>,
    pub(super) device: Opened,
}

impl Parts {
    pub(super) fn new(
        args: &WorkerArgs,
        plan: &WorkerPlan,
        surroundings: &Surroundings,
    ) -> Result<Parts, WorkerError> {
        let (config, world) = (&plan.train_config, plan.mesh.world());
        if world != surroundings.world {
            return Err(WorkerError::Variable {
                name: env::WORLD_SIZE,
                value: surroundings.world.to_string(),
                expected: format!("the plan is for {world} ranks"),
            });
        }
        let rank = surroundings.rank;
        let blueprint = Blueprint::with_sabotage(config, &plan.mesh, rank, args.sabotage)
            .map_err(WorkerError::Problems)?;
        let split = Split {
            seq_len: config.model.seq_len,
            validation: config.data.validation,
            seed: config.train.seed,
            vocab: config.model.vocab,
        };
        let data = Dataset::open(&surroundings.resolve(&config.data.path), split)?;
        let comm = join(plan, surroundings, blueprint.bytes.gradients as usize)?;
        Ok(Parts {
            blueprint,
            data,
            comm,
            device: device::open(plan)?,
        })
    }
}

/// Over shared memory where all ranks are on this node, else over tcp between nodes.
fn join(
    plan: &WorkerPlan,
    surroundings: &Surroundings,
    grads_bytes: usize,
) -> Result<Box<dyn Comm>, WorkerError> {
    let (rank, size) = (surroundings.rank, surroundings.world);
    if size == 1 {
        let mut group = local::group(1, 0)?;
        return Ok(Box::new(group.remove(0)));
    }
    let secret = surroundings.secret()?;
    let spec = Spec {
        secret: &secret,
        group: "world",
        rank,
        size,
        grads_bytes,
    };
    let options = Options {
        spin: !plan.shared_cores,
        ..Options::default()
    };
    Ok(match surroundings.master()? {
        None => Box::new(shm::join(&spec, options)?),
        Some(master) => Box::new(tcp::join(
            &spec,
            master,
            surroundings.node.clone(),
            options,
        )?),
    })
}

/// Trains to the end of the plan, or until asked to stop; the exit code.
pub(super) fn run(
    args: &WorkerArgs,
    plan: &WorkerPlan,
    surroundings: &Surroundings,
) -> Result<i32, WorkerError> {
    let mut parts = Parts::new(args, plan, surroundings)?;
    let outcome = train(plan, surroundings, &mut parts);
    match outcome {
        Ok(code) => {
            if args.memory {
                memory(&parts.blueprint);
            }
            Ok(code)
        }
        Err(error) => {
            // Peers need not wait to find out; their errors name this rank and its reason.
            if !matches!(
                error,
                WorkerError::Comm(_) | WorkerError::Train(TrainError::Comm(_))
            ) {
                parts.comm.abort(&error.to_string());
            }
            Err(error)
        }
    }
}

fn train(
    plan: &WorkerPlan,
    surroundings: &Surroundings,
    parts: &mut Parts,
) -> Result<i32, WorkerError> {
    let gemm = parts.device.measure(&mut *parts.comm)?;
    let (blueprint, data) = (&parts.blueprint, &parts.data);
    let mut report = Report::new(
        surroundings.progress.as_deref(),
        surroundings.attempt,
        surroundings.rank,
    )?;
    let device = parts.device.device();
    let mut trainer = Trainer::new(blueprint, device, &mut *parts.comm, data)?;
    let (parent, told) = begin(&mut trainer, surroundings, &data.fingerprint())?;
    report.lead(start_line(plan, surroundings, &trainer, gemm)?)?;
    for text in told {
        let mut line = Line::new(Kind::Note);
        line.text = Some(text);
        report.lead(line)?;
    }
    let mut keeper: Box<dyn Keeper> = match &surroundings.save_dir {
        None => Box::new(Keepless),
        Some(dir) => {
            let about = About {
                dir: dir.clone(),
                attempt: surroundings.attempt.unwrap_or(1),
                parent,
                fingerprint: plan.fingerprint.clone(),
                data: data.fingerprint(),
                keep: plan.checkpoint.map_or(1, |policy| policy.keep),
                asked: surroundings
                    .control
                    .as_ref()
                    .map(|dir| dir.join(env::CONTROL_SAVE)),
            };
            Box::new(Checkpoints::new(&blueprint.params, about))
        }
    };
    let mut control = Control::new(surroundings.control.as_deref());
    let mut plan = Plan {
        every: every(plan, surroundings),
        observer: &mut control,
        keeper: &mut *keeper,
        report: &mut report,
    };
    let end = run_steps(&mut trainer, &mut plan)?;
    let mut line = Line::new(Kind::Note);
    line.values = Some([("heap_growth_bytes".to_owned(), heap::growth().into())].into());
    report.lead(line)?;
    Ok(match end {
        End::Done => exit::DONE,
        End::Stopped => exit::START_AGAIN,
    })
}

/// When checkpoints are due; never where there is nowhere to save to.
fn every(plan: &WorkerPlan, surroundings: &Surroundings) -> Every {
    let policy = plan.checkpoint.filter(|_| surroundings.save_dir.is_some());
    match policy.map(|policy| (policy.every_steps, policy.every_seconds)) {
        Some((Some(steps), _)) => Every::Steps(steps),
        Some((None, Some(seconds))) => Every::Seconds(seconds),
        _ => Every::Never,
    }
}

/// Weights from the seed, or all state from a checkpoint; where it came from and what is to be told.
pub(super) fn begin(
    trainer: &mut Trainer<'_>,
    surroundings: &Surroundings,
    data: &str,
) -> Result<(Option<Point>, Vec<String>), WorkerError> {
    let Some(dir) = &surroundings.load_from else {
        trainer.init_weights();
        return Ok((None, Vec::new()));
    };
    let loaded = trainer.resume(dir);
    let verdict = match &loaded {
        Ok(_) => 0.0,
        Err(CheckpointError::Unreadable { .. }) => 1.0,
        Err(_) => 2.0,
    };
    let mut verdicts = vec![0.0; trainer.comm.size()];
    trainer.comm.all_gather(&[verdict], &mut verdicts)?;
    let manifest = loaded?;
    if let Some(rank) = verdicts.iter().position(|v| *v > 0.0) {
        return Err(WorkerError::PeerCheckpoint {
            rank,
            unreadable: verdicts.contains(&1.0),
            path: dir.clone(),
        });
    }
    Ok((
        Some(manifest.point()),
        compare(trainer, &manifest, data, dir)?,
    ))
}

/// Differences between plan and checkpoint: an error if one forbids to go on, else words.
fn compare(
    trainer: &Trainer<'_>,
    manifest: &crate::contract::checkpoint::Manifest,
    data: &str,
    dir: &Path,
) -> Result<Vec<String>, WorkerError> {
    let Some(saved) = &manifest.trainer else {
        return Ok(Vec::new());
    };
    let now = Now {
        config: &trainer.blueprint.config,
        mesh: trainer.blueprint.mesh,
        isa: trainer.device.isa(),
        data,
    };
    let all = differences(saved, &now);
    let of = |weight: Weight| {
        let some = all.iter().filter(move |d| d.weight == weight);
        some.map(|d| d.text.clone()).collect::<Vec<_>>()
    };
    let refused = of(Weight::Refused);
    if refused.is_empty() {
        Ok(of(Weight::Told))
    } else {
        let why = refused.join("; ");
        Err(WorkerError::Refused(format!(
            "{why} (checkpoint {})",
            dir.display()
        )))
    }
}

fn start_line(
    plan: &WorkerPlan,
    surroundings: &Surroundings,
    trainer: &Trainer<'_>,
    gemm: Option<f64>,
) -> Result<Line, WorkerError> {
    let blueprint = trainer.blueprint;
    let mut line = Line::new(Kind::Note);
    let mut values = std::collections::BTreeMap::from([
        ("isa".to_owned(), trainer.device.isa().into()),
        ("threads".to_owned(), plan.threads.into()),
        ("arena_bytes".to_owned(), blueprint.bytes.total().into()),
        ("parameters".to_owned(), blueprint.params.count().into()),
        ("start_step".to_owned(), trainer.state.step.into()),
    ]);
    if let Some(gemm) = gemm {
        // Over all ranks.
        values.insert("gemm_peak_gflops".to_owned(), gemm.into());
    }
    if surroundings.world > 1 {
        let transport = surroundings.master()?.map_or("shm", |_| "tcp");
        values.insert("transport".to_owned(), transport.into());
    }
    line.values = Some(values);
    Ok(line)
}

fn memory(blueprint: &Blueprint) {
    let classes = blueprint.bytes.classes();
    let classes: Vec<String> = classes
        .iter()
        .map(|(name, bytes)| format!("{name} {bytes}"))
        .collect();
    eprintln!(
        "arena {} bytes: {}; heap {} bytes, at most {} more after step 1",
        blueprint.bytes.total(),
        classes.join(", "),
        heap::used(),
        heap::growth(),
    );
}
