//! The supervisor's port: accepts connections, lets only those in that know the attempt's secret.

use crate::control::auth::{Nonce, Secret, Side};
use crate::control::frame::{GREETING_LIMIT, LIMIT};
use crate::control::{Answer, Challenge, Decoder, Down, Hello, PROTOCOL, Up, encode};
use anyhow::{Context, bail, ensure};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

/// How long a peer may take to prove itself.
const GREETING: Duration = Duration::from_secs(10);
/// Peers that may be proving themselves at the same time, beyond one a rank and node.
const STRANGERS: usize = 64;

/// Who speaks: a rank's shim, or the launcher of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    Rank(usize),
    Launcher,
}

/// What happens on the port. `connection` is unique.
#[derive(Debug)]
pub(super) enum News {
    Joined {
        peer: Peer,
        connection: u64,
        node: String,
        pid: i32,
        sender: Outgoing,
    },
    Said {
        peer: Peer,
        connection: u64,
        message: Up,
    },
    Left {
        peer: Peer,
        connection: u64,
    },
}

/// The sending half of a connection; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Outgoing(mpsc::UnboundedSender<Vec<u8>>);

impl Outgoing {
    pub(super) fn send(&self, message: &Down) {
        if let Ok(frame) = encode(message) {
            // The peer may have left; that is told by `News::Left`.
            let _ = self.0.send(frame);
        }
    }
}

/// The attempt that the port serves.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub attempt: u32,
    pub world: usize,
    pub secret: Secret,
}

/// Serves `door` until the task is aborted; every event is given to `tell` as (attempt, news).
pub(super) async fn serve(listener: TcpListener, door: Door, tell: mpsc::Sender<(u32, News)>) {
    let door = Arc::new(door);
    let strangers = Arc::new(Semaphore::new(STRANGERS + 2 * door.world));
    for connection in 0.. {
        let Ok(permit) = strangers.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors or a peer that left at once: try again a little later.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let (door, tell) = (door.clone(), tell.clone());
        tokio::spawn(async move {
            // A stranger is turned away without a word.
            let greeted = tokio::time::timeout(GREETING, greet(stream, &door)).await;
            drop(permit);
            if let Ok(Ok(guest)) = greeted {
                converse(guest, &door, connection, &tell).await;
            }
        });
    }
}

struct Guest {
    stream: TcpStream,
    decoder: Decoder,
    peer: Peer,
    node: String,
    pid: i32,
}

async fn greet(mut stream: TcpStream, door: &Door) -> anyhow::Result<Guest> {
    stream.set_nodelay(true)?;
    let mut decoder = Decoder::new(GREETING_LIMIT);
    let hello: Hello = read(&mut stream, &mut decoder).await?;
    ensure!(hello.protocol == PROTOCOL, "another protocol");
    ensure!(hello.attempt == door.attempt, "another attempt");
    let peer = match hello.rank {
        Some(rank) if rank < door.world => Peer::Rank(rank),
        Some(_) => bail!("no such rank"),
        None => Peer::Launcher,
    };
    let nonce = Nonce::new(crate::rank::link::random()?);
    let challenge = Challenge {
        protocol: PROTOCOL,
        proof: door.secret.proof(Side::Supervisor, &hello.nonce, &nonce),
        nonce: nonce.clone(),
    };
    stream.write_all(&encode(&challenge)?).await?;
    let answer: Answer = read(&mut stream, &mut decoder).await?;
    ensure!(
        door.secret
            .verify(Side::Shim, &hello.nonce, &nonce, &answer.proof),
        "a wrong proof"
    );
    decoder.raise(LIMIT);
    Ok(Guest {
        stream,
        decoder,
        peer,
        node: hello.node,
        pid: hello.pid,
    })
}

async fn read<T: serde::de::DeserializeOwned>(
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> anyhow::Result<T> {
    let mut chunk = [0; 1024];
    loop {
        if let Some(message) = decoder.message()? {
            return Ok(message);
        }
        match stream.read(&mut chunk).await? {
            0 => bail!("it left"),
            n => decoder.push(&chunk[..n]),
        }
    }
}

async fn converse(guest: Guest, door: &Door, connection: u64, tell: &mpsc::Sender<(u32, News)>) {
    let Guest {
        stream,
        decoder,
        peer,
        node,
        pid,
    } = guest;
    let (reader, mut writer) = stream.into_split();
    let (sender, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
    let joined = News::Joined {
        peer,
        connection,
        node,
        pid,
        sender: Outgoing(sender),
    };
    if tell.send((door.attempt, joined)).await.is_err() {
        return;
    }
    let write = async {
        while let Some(frame) = frames.recv().await {
            writer.write_all(&frame).await.context("cannot send")?;
        }
        anyhow::Ok(())
    };
    let hear = hear(reader, decoder, |message| {
        let news = News::Said {
            peer,
            connection,
            message,
        };
        tell.send((door.attempt, news))
    });
    // Either half ending ends the connection; why does not matter, the loss is told.
    tokio::select! {
        _ = write => {}
        _ = hear => {}
    }
    let _ = tell
        .send((door.attempt, News::Left { peer, connection }))
        .await;
}

async fn hear<F>(
    mut reader: OwnedReadHalf,
    mut decoder: Decoder,
    mut tell: impl FnMut(Up) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = Result<(), mpsc::error::SendError<(u32, News)>>>,
{
    let mut chunk = vec![0; 16 * 1024];
    loop {
        while let Some(message) = decoder.message()? {
            tell(message).await.context("the supervisor ends")?;
        }
        match reader.read(&mut chunk).await? {
            0 => return Ok(()),
            n => decoder.push(&chunk[..n]),
        }
    }
}
