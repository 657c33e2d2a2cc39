//! The `haul` binary.

fn main() -> std::process::ExitCode {
    haul::cli::main()
}
