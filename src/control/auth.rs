//! Proof that both ends know the attempt's secret: blake3 keyed hashes over both nonces and the role.

use serde::{Deserialize, Serialize};

/// A number used once, as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub String);

impl Nonce {
    pub fn new(bytes: [u8; 32]) -> Nonce {
        Nonce(blake3::Hash::from_bytes(bytes).to_hex().to_string())
    }
}

/// Who proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Supervisor,
    Shim,
}

/// The secret of an attempt: never in an environment or an argument, and not shown by `Debug`.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The secret in a file's content; absent when it is not 32 bytes.
    pub fn parse(content: &[u8]) -> Option<Secret> {
        content.try_into().ok().map(Secret)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The proof of `side` over the nonces of shim and supervisor, in hex.
    pub fn proof(&self, side: Side, shim: &Nonce, supervisor: &Nonce) -> String {
        self.keyed(side, shim, supervisor).to_hex().to_string()
    }

    /// Whether `proof` is that of `side`; compared in constant time.
    pub fn verify(&self, side: Side, shim: &Nonce, supervisor: &Nonce, proof: &str) -> bool {
        // blake3::Hash compares in constant time.
        blake3::Hash::from_hex(proof).is_ok_and(|given| given == self.keyed(side, shim, supervisor))
    }

    /// A name that only holders of the secret can compute, such as that of a rank's private directory.
    pub fn name(&self, of: &str) -> String {
        let hash = blake3::keyed_hash(&self.0, format!("name {of}").as_bytes());
        hash.to_hex().as_str()[..16].to_owned()
    }

    fn keyed(&self, side: Side, shim: &Nonce, supervisor: &Nonce) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in [
            match side {
                Side::Supervisor => "haul supervisor",
                Side::Shim => "haul shim",
            },
            &shim.0,
            &supervisor.0,
        ] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_secret_one_side_and_one_pair_of_nonces() {
        let secret = Secret::new([7; 32]);
        let (a, b) = (Nonce::new([1; 32]), Nonce::new([2; 32]));
        let proof = secret.proof(Side::Shim, &a, &b);
        assert!(secret.verify(Side::Shim, &a, &b, &proof));
        assert!(!secret.verify(Side::Supervisor, &a, &b, &proof));
        assert!(!secret.verify(Side::Shim, &b, &a, &proof));
        assert!(!Secret::new([8; 32]).verify(Side::Shim, &a, &b, &proof));
        for wrong in ["", "zz", &proof[1..]] {
            assert!(!secret.verify(Side::Shim, &a, &b, wrong));
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
