//! Each kernel's share of what this machine can do, at the shapes of a model of 30 million parameters.
//!
//! `cargo bench -p haul-runtime --bench kernels [-- <threads> [<part of a name>]]`. Peaks are measured before and after in the same
//! run: when they differ much, others used the machine. The share by processor time (`cpu`) bears that better, but counts no idle thread.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use haul_runtime::blueprint::program::{
    Epilogue, Op, Program, Region, SQUARES_BLOCK, Val, ValInfo,
};
use haul_runtime::device::cpu::{CpuDevice, peak};
use haul_runtime::device::{Device, Frame, Sizes};
use nix::time::{ClockId, clock_gettime};

/// Rows of a micro-batch, width, feed-forward width, rows of a chunk of the head, vocabulary, parameters.
const N: usize = 2048;
const C: usize = 384;
const F: usize = 1536;
const CHUNK: usize = 512;
const V: usize = 50304;
const PARAMETERS: usize = 30 << 20;
const TIME: Duration = Duration::from_millis(400);

/// A kernel with what it does.
struct Case {
    name: String,
    op: Op,
    /// Floating-point operations, or 0 for kernels that memory bounds.
    flops: f64,
    /// Bytes that must move.
    bytes: f64,
}

/// Values laid out one after another; each kernel starts from the beginning.
#[derive(Default)]
struct Layout {
    program: Program,
    real: usize,
    index: usize,
    scalars: usize,
}

impl Layout {
    fn place(&mut self, region: Region, offset: usize, len: usize) -> Val {
        let id = self.program.vals.len() as u32;
        self.program.vals.push(ValInfo {
            name: format!("v{id}"),
            region,
            offset,
            len,
        });
        Val(id)
    }

    fn real(&mut self, len: usize) -> Val {
        let at = self.real;
        self.real += len.next_multiple_of(16);
        self.place(Region::Work, at, len)
    }

    fn index(&mut self, len: usize) -> Val {
        let at = self.index;
        self.index += len.next_multiple_of(16);
        self.place(Region::Tokens, at, len)
    }

    fn scalars(&mut self, len: usize) -> Val {
        let at = self.scalars;
        self.scalars += len;
        self.place(Region::Scalars, at, len)
    }

    fn gemm(
        &mut self,
        name: &str,
        (m, n, k): (usize, usize, usize),
        (ta, tb): (bool, bool),
        finish: &str,
    ) -> Case {
        let (a, b, c) = (self.real(m * k), self.real(k * n), self.real(m * n));
        let epilogue = match finish {
            "gelu" => Epilogue::BiasGelu {
                bias: self.real(n),
                pre: self.real(m * n),
            },
            "residual" => Epilogue::BiasResidual {
                bias: self.real(n),
                residual: c,
            },
            "bias" => Epilogue::Bias { bias: self.real(n) },
            _ => Epilogue::None,
        };
        let accumulate = finish == "add";
        let op = Op::Gemm {
            a,
            b,
            c,
            m,
            n,
            k,
            ta,
            tb,
            accumulate,
            epilogue,
        };
        let name = format!("{name} {m}x{n}x{k}");
        Case {
            name,
            op,
            flops: 2.0 * (m * n * k) as f64,
            bytes: 0.0,
        }
    }
}

fn products(l: &mut Layout) -> Vec<Case> {
    const NN: (bool, bool) = (false, false);
    const NT: (bool, bool) = (false, true);
    const TN: (bool, bool) = (true, false);
    vec![
        l.gemm("head logits NT", (CHUNK, V, C), NT, ""),
        l.gemm("head dX NN", (CHUNK, C, V), NN, ""),
        l.gemm("head dW TN add", (V, C, CHUNK), TN, "add"),
        l.gemm("qkv NT bias", (N, 3 * C, C), NT, "bias"),
        l.gemm("proj NT residual", (N, C, C), NT, "residual"),
        l.gemm("fc NT gelu", (N, F, C), NT, "gelu"),
        l.gemm("out NT residual", (N, C, F), NT, "residual"),
        l.gemm("qkv dX NN", (N, C, 3 * C), NN, ""),
        l.gemm("fc dX NN", (N, C, F), NN, ""),
        l.gemm("out dX NN", (N, F, C), NN, ""),
        l.gemm("qkv dW TN add", (3 * C, C, N), TN, "add"),
        l.gemm("fc dW TN add", (F, C, N), TN, "add"),
        l.gemm("out dW TN add", (C, F, N), TN, "add"),
        l.gemm("small NT", (64, 192, 192), NT, ""),
        l.gemm("row NT", (1, 1536, 384), NT, ""),
    ]
}

fn attention(l: &mut Layout, batch: usize, seq: usize, heads: usize, head_dim: usize) -> Vec<Case> {
    let n = batch * seq * heads * head_dim;
    let (qkv, out, dqkv, dout) = (l.real(3 * n), l.real(n), l.real(3 * n), l.real(n));
    let (lse, delta) = (l.real(batch * heads * seq), l.real(batch * heads * seq));
    // Two products forward and five backward over the lower half.
    let half = (batch * heads * seq * (seq + 1) * head_dim) as f64;
    let segments = None;
    let forward = Op::Attention {
        qkv,
        out,
        lse,
        segments,
        batch,
        seq,
        heads,
        head_dim,
    };
    let backward = Op::AttentionGrad {
        qkv,
        out,
        lse,
        dout,
        delta,
        dqkv,
        segments,
        batch,
        seq,
        heads,
        head_dim,
    };
    let name = |what| format!("attention {what} {batch}x{seq}x{heads}x{head_dim}");
    vec![
        Case {
            name: name("forward"),
            op: forward,
            flops: 2.0 * half,
            bytes: 0.0,
        },
        Case {
            name: name("backward"),
            op: backward,
            flops: 5.0 * half,
            bytes: 0.0,
        },
    ]
}

fn streams(l: &mut Layout) -> Vec<Case> {
    let case = |name: &str, op, floats: usize| Case {
        name: name.into(),
        op,
        flops: 0.0,
        bytes: 4.0 * floats as f64,
    };
    let (x, y, z) = (l.real(N * F), l.real(N * F), l.real(N * C));
    let (gain, bias, stats) = (l.real(F), l.real(F), l.real(2 * N));
    let (dgain, dbias) = (l.real(F), l.real(F));
    let (logits, row_stats, losses) = (l.real(CHUNK * V), l.real(3 * CHUNK), l.real(CHUNK));
    let (targets, at) = (l.index(N), l.index(N));
    let table = l.real(V * C);
    let [p, g, m, v] = [0; 4].map(|_| l.real(PARAMETERS));
    let (scalars, squares) = (l.scalars(8), l.scalars(PARAMETERS.div_ceil(SQUARES_BLOCK)));
    let (rows, width) = (N, C);
    vec![
        case(
            "norm",
            Op::Norm {
                x,
                gain,
                bias,
                out: z,
                stats,
                rows,
                width,
                eps: 1e-5,
            },
            2 * N * C,
        ),
        case(
            "norm gradient",
            Op::NormGrad {
                x,
                gain,
                stats,
                dy: y,
                dx: z,
                dgain,
                dbias,
                rows,
                width,
                add: true,
            },
            6 * N * C,
        ),
        case(
            "gelu gradient",
            Op::GeluGrad {
                pre: x,
                d: y,
                len: N * F,
            },
            3 * N * F,
        ),
        case(
            "column sum",
            Op::ColumnSum {
                x,
                out: bias,
                rows,
                width: F,
            },
            N * F,
        ),
        case(
            "embed",
            Op::Embed {
                tokens: targets,
                at,
                table,
                positions: y,
                out: z,
                rows,
                width,
            },
            3 * N * C,
        ),
        case(
            "embed gradient",
            Op::EmbedGrad {
                slots: targets,
                at,
                dy: z,
                rows_grad: table,
                dpositions: y,
                rows,
                width,
            },
            6 * N * C,
        ),
        case(
            "row stats",
            Op::RowStats {
                logits,
                targets,
                stats: row_stats,
                rows: CHUNK,
                vocab: V,
            },
            CHUNK * V,
        ),
        case(
            "loss gradient",
            Op::LossGrad {
                logits,
                targets,
                stats: row_stats,
                losses,
                rows: CHUNK,
                vocab: V,
                scale: 1e-3,
            },
            2 * CHUNK * V,
        ),
        case(
            "sum of squares",
            Op::SumSquares {
                x: g,
                out: squares,
                len: PARAMETERS,
            },
            PARAMETERS,
        ),
        case(
            "adamw",
            Op::AdamW {
                p,
                g,
                m,
                v,
                scalars,
                len: PARAMETERS,
                decay: true,
                lr_mult: 1.0,
            },
            8 * PARAMETERS,
        ),
        case(
            "zero",
            Op::Zero {
                x: g,
                len: PARAMETERS,
            },
            PARAMETERS,
        ),
    ]
}

/// GB/s of copies between buffers beyond the caches, read and written bytes counted.
fn copy_rate(threads: usize) -> f64 {
    let rate = || {
        let from = vec![1u8; 64 << 20];
        let mut to = vec![0u8; 64 << 20];
        let mut best = 0.0f64;
        for _ in 0..6 {
            let start = Instant::now();
            black_box(&mut to).copy_from_slice(black_box(&from));
            best = best.max(2.0 * from.len() as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
        best
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(rate)).collect();
        all.into_iter().map(|t| t.join().unwrap_or(0.0)).sum()
    })
}

/// Seconds of processor time that all threads have used.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    now.map_or(f64::NAN, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}

/// Multiply-add rate in GFLOP/s: by the clock, and by processor time of one thread.
fn peak_rates(threads: usize) -> (f64, f64) {
    const SECONDS: f64 = 0.2;
    let start = processor_seconds();
    let rate = peak::fma_gflops(threads, SECONDS);
    (rate, rate * SECONDS / (processor_seconds() - start))
}

/// Seconds of one launch: the best and the median by the clock, the median of processor time.
fn time(device: &mut CpuDevice, program: &Program, op: &Op) -> (f64, f64, f64) {
    let (mut seen, mut work) = (vec![], vec![]);
    let start = Instant::now();
    while start.elapsed() < TIME || seen.len() < 4 {
        let (one, used) = (Instant::now(), processor_seconds());
        if let Err(error) = device.launch(program, op, Frame::default()) {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
        seen.push(one.elapsed().as_secs_f64());
        work.push(processor_seconds() - used);
    }
    // The first launch finds caches and pages cold.
    let (warm, work) = (&mut seen[1..], &mut work[1..]);
    warm.sort_by(f64::total_cmp);
    work.sort_by(f64::total_cmp);
    (warm[0], warm[warm.len() / 2], work[work.len() / 2])
}

/// The real region filled with small values, so that nothing overflows or is subnormal.
fn fill(device: &mut CpuDevice, len: usize) {
    let block: Vec<u8> = (0..1 << 16)
        .flat_map(|i: u32| {
            ((i.wrapping_mul(2_654_435_761) >> 20) as f32 / 40_960.0 - 0.05).to_le_bytes()
        })
        .collect();
    for at in (0..4 * len).step_by(block.len()) {
        device.write(Region::Work, at, &block[..block.len().min(4 * len - at)]);
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let threads = words.iter().find_map(|w| w.parse().ok()).unwrap_or(2);
    let filter = words.iter().find(|w| w.parse::<usize>().is_err());
    type Group = fn(&mut Layout) -> Vec<Case>;
    let groups: [Group; 4] = [
        products,
        |l| attention(l, 8, 256, 6, 64),
        |l| attention(l, 2, 1024, 12, 64),
        streams,
    ];
    for group in groups {
        let mut layout = Layout::default();
        let mut cases = group(&mut layout);
        cases.retain(|case| filter.is_none_or(|f| case.name.contains(f.as_str())));
        run_group(layout, cases, threads);
    }
}

fn run_group(layout: Layout, cases: Vec<Case>, threads: usize) {
    if cases.is_empty() {
        return;
    }
    let mut device = match CpuDevice::new(threads) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    let sizes = Sizes {
        work: layout.real,
        tokens: layout.index,
        scalars: layout.scalars + 8,
        slots: 1,
        ..Sizes::default()
    };
    if let Err(error) = device.reserve(&sizes, None) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
    fill(&mut device, layout.real);
    let scalars = [1.0f64, 1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5];
    let bytes: Vec<u8> = scalars.iter().flat_map(|x| x.to_le_bytes()).collect();
    device.write(Region::Scalars, 0, &bytes);
    let (peak, one) = peak_rates(threads);
    let copies = copy_rate(threads);
    println!(
        "\n{threads} thread(s), {}: {peak:.0} GFLOP/s of multiply-adds ({one:.0} a processor second), {copies:.1} GB/s of copies before",
        device.isa()
    );
    println!(
        "{:34} {:>9} {:>9} {:>9} {:>6} {:>6} {:>6} {:>9}",
        "kernel", "ms best", "median", "rate", "best", "median", "cpu", "cpu ms"
    );
    for case in &cases {
        let (best, median, work) = time(&mut device, &layout.program, &case.op);
        let (amount, unit, peak, one) = if case.flops > 0.0 {
            (case.flops / 1e9, "GF/s", peak, one)
        } else {
            (case.bytes / 1e9, "GB/s", copies, f64::NAN)
        };
        println!(
            "{:34} {:>9.3} {:>9.3} {:>4.0} {unit} {:>6.3} {:>6.3} {:>6.3} {:>9.3}",
            case.name,
            best * 1e3,
            median * 1e3,
            amount / best,
            amount / best / peak,
            amount / median / peak,
            amount / work / one,
            work * 1e3,
        );
    }
    let (peak, one) = peak_rates(threads);
    println!(
        "{peak:.0} GFLOP/s ({one:.0} a processor second), {:.1} GB/s after",
        copy_rate(threads)
    );
}
