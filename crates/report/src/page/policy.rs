//! The content security policy of a page: its own style and script, and nothing else. `page` writes it into the head of
//! each page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The policy that lets a browser load only the page's styles, and execute only the script with this text.
pub fn policy(script: &str) -> String {
    let digest = STANDARD.encode(Sha256::digest(script.as_bytes()));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; \
         form-action 'none'"
    )
}
