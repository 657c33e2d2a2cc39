#!/bin/bash
# A trainer in 20 lines of shell: the trainer contract (docs/trainer-contract.md) and nothing else.
# Usage: shell-trainer.sh STEPS SECONDS_A_STEP STEPS_BETWEEN_CHECKPOINTS
steps=$1 pause=$2 every=$3 step=0
if [ -n "$HAUL_LOAD_FROM" ]; then
  read -r step < "$HAUL_LOAD_FROM" && [ "$step" -ge 0 ] || exit 76 # This checkpoint is unreadable.
fi
save() { # Rank 0 speaks for all: data first, then the pointer, then the progress line.
  [ "$RANK" = 0 ] || return 0
  echo "$step" > "$HAUL_SAVE_DIR/state-$step"
  echo "state-$step" > "$HAUL_SAVE_DIR/latest.new" && mv "$HAUL_SAVE_DIR/latest.new" "$HAUL_SAVE_DIR/latest"
  echo "{\"kind\":\"save\",\"step\":$step,\"path\":\"state-$step\"}" >> "$HAUL_PROGRESS"
}
echo "rank $RANK of $WORLD_SIZE starts at step $step"
while [ "$step" -lt "$steps" ]; do
  sleep "$pause"
  step=$((step + 1)) loss=$((1000 + 40000 / (step + 9)))
  printf '{"kind":"step","step":%d,"loss":%d.%03d}\n' $step $((loss / 1000)) $((loss % 1000)) >> "$HAUL_PROGRESS"
  if [ $((step % every)) = 0 ] || [ -e "$HAUL_CONTROL/save" ]; then save; rm -f "$HAUL_CONTROL/save"; fi
  if [ -e "$HAUL_CONTROL/stop" ]; then save; exit 75; fi # Saved: start me again.
done
save
