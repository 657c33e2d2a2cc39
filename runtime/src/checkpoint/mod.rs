//! Checkpoints: logical tensors as pieces in safetensors files, valid by their manifest.
