#include "cli/cli.hpp"

int main(int argc, char** argv) {
  resid::cli::Frame frame;
  resid::cli::add_run(frame);
  resid::cli::add_replay(frame);
  resid::cli::add_opt(frame);
  resid::cli::add_sweep(frame);
  resid::cli::add_inspect(frame);
  resid::cli::add_synth(frame);
  resid::cli::add_completion(frame);
  return frame.run(argc, argv);
}
