"use strict";
// The formulas behind the sliders of the lessons' pages. Each computes what the closed forms of the
// program compute (cli/lessons/formula_values.cc); a test compares both. Null: it does not hold.

// Latency a in seconds, and seconds b per byte.
function linkOf({latency_us, gb_per_s}) {
  return {a: latency_us * 1e-6, b: 1 / (gb_per_s * 1e9)};
}

function largestPowerOfTwo(p) {
  let q = 1;
  while (2 * q <= p) q *= 2;
  return q;
}

// Elements of chunk i of p: the first ones have one more.
function chunk(count, p, i) {
  return Math.floor(count / p) + (i % p < count % p ? 1 : 0);
}

// Elements that rank 0 sends: all chunks but one.
function scatteredElements(count, p) {
  return p === 1 ? 0 : count - chunk(count, p, 0);
}
function gatheredElements(count, p) {
  return p === 1 ? 0 : count - chunk(count, p, 1);
}
function reducedElements(count, p) {
  return scatteredElements(count, p) + gatheredElements(count, p);
}

// 2 (p - 1) steps, each with the largest chunk.
function ringSeconds(count, elementBytes, p, {a, b}) {
  return 2 * (p - 1) * (a + Math.ceil(count / p) * elementBytes * b);
}

// Ranks above a power of two send their data to a partner first, and get the result at the end.
function foldSeconds(bytes, p, {a, b}) {
  return largestPowerOfTwo(p) === p ? 0 : 2 * (a + bytes * b) + bytes * b;
}

// A sequence of 8 tokens on a ring, with one number for each query and key.
const RING = {ranks: 4, queries: [1, 0.5, -1, 1, 2, -1, 0.5, 1], keys: [1, 3, -1, 0, 2, 1, 4, -2]};

// The tokens of a rank, zig-zag.
function ringBlock(rank) {
  return [rank, RING.keys.length - 1 - rank];
}

const FORMULAS = {
  message({bytes, pieces, ...link}) {
    const {a, b} = linkOf(link);
    const time = pieces * (a + bytes / pieces * b);
    return {time, waiting: pieces * a, rate: bytes / time, half: a / b};
  },

  all_reduce({ranks, bytes, ...given}) {
    const link = linkOf(given), {a, b} = link, count = bytes / 4, q = largestPowerOfTwo(ranks);
    const rounds = Math.log2(q), part = Math.ceil(count / q) * 4;
    return {
      ring: ringSeconds(count, 4, ranks, link),
      recursive_doubling: rounds * (a + bytes * b) + foldSeconds(bytes, ranks, link),
      halving_doubling: 2 * (rounds * a + (q - 1) * part * b) + foldSeconds(bytes, ranks, link),
      linear: 2 * (a + (ranks - 1) * bytes * b),
      ring_bytes: reducedElements(count, ranks) * 4,
      ring_messages: 2 * (ranks - 1),
    };
  },

  buckets({parameters, buckets, ranks, element_bytes, ...link}) {
    const count = Math.ceil(parameters / buckets);
    const last = ringSeconds(count, element_bytes, ranks, linkOf(link));
    return {
      time: buckets * last,
      last,
      sent_bytes: buckets * reducedElements(count, ranks) * element_bytes,
      sent_messages: buckets * 2 * (ranks - 1),
    };
  },

  parameter_server({workers, servers, bytes, ...given}) {
    const link = linkOf(given), {a, b} = link;
    // How often all bytes cross the busiest link.
    const apart = servers > workers ? 2 - (servers / workers - 1) / servers : 2 * workers / servers;
    return {
      servers_time: 2 * a + apart * bytes * b,
      colocated_time: 2 * a + 2 * (workers - 1) / workers * bytes * b,
      ring_time: ringSeconds(bytes / 4, 4, workers, link),
      server_bytes: workers * bytes / servers,
    };
  },

  pipeline({ranks: p, micro_batches: m, virtual_stages: v}) {
    const bubble = 100 * (p - 1) / (m + p - 1);
    const takesShape = m % p === 0;  // interleaved runs p micro-batches through a stage in turn
    const idle = (p - 1) / v;
    return {
      naive: 100 * (p - 1) / p,
      gpipe: bubble,
      one_f_one_b: bubble,
      interleaved: takesShape ? 100 * idle / (m + idle) : null,
      overhead: 100 * (p - 1) / m,
      gpipe_held: m,
      one_f_one_b_held: Math.min(p, m),
      interleaved_held:
          takesShape ? Math.min(2 * (p - 1) + (v - 1) * p + 1, m * v) / v : null,
    };
  },

  tensor_layer({ranks, tokens, width, element_bytes, ...link}) {
    const count = tokens * width;
    const reduced = 2 * reducedElements(count, ranks) * element_bytes;  // of two all-reduces
    return {
      forward_bytes: reduced,
      backward_bytes: reduced,
      sequence_bytes: reduced + 2 * gatheredElements(count, ranks) * element_bytes,
      exposed: 2 * ringSeconds(count, element_bytes, ranks, linkOf(link)),
    };
  },

  zero({parameters, ranks, element_bytes}) {
    // AdamW's two moments, and in bf16 a master copy of the parameters, all in f32.
    const optimizer = element_bytes === 2 ? 12 : 8;
    const held = (stage) => {
      const part = (from) => stage >= from ? parameters / ranks : parameters;
      return part(3) * element_bytes + part(2) * element_bytes + part(1) * optimizer;
    };
    const scattered = scatteredElements(parameters, ranks) * element_bytes;
    const gathered = gatheredElements(parameters, ranks) * element_bytes;
    return {
      stage_0: held(0),
      stage_1: held(1),
      stage_2: held(2),
      stage_3: held(3),
      two_exchanges: scattered + gathered,
      three_exchanges: scattered + 2 * gathered,
    };
  },

  // One query's softmax after a step of the ring, block by block.
  ring_attention({query, step}) {
    const {ranks, queries, keys} = RING, rank = Math.min(query, queries.length - 1 - query);
    let block, scores, shrink, highest = -Infinity, sum = 0, weighted = 0;
    for (let s = 0; s <= step; ++s) {
      block = (rank - s + ranks) % ranks;
      const positions = ringBlock(block);
      scores = positions.map((key) => key <= query ? queries[query] * keys[key] : null);
      const before = highest;
      highest = Math.max(highest, ...scores.filter((score) => score !== null));
      shrink = Math.exp(before - highest);
      sum *= shrink;
      weighted *= shrink;
      scores.forEach((score, i) => {
        const weight = score === null ? 0 : Math.exp(score - highest);
        sum += weight;
        weighted += weight * positions[i];  // a key's value is its position
      });
    }
    return {block, first_score: scores[0], second_score: scores[1], shrink, highest, sum, out: weighted / sum,
            log_sum_exp: highest + Math.log(sum)};
  },

  // Chunk c begins its trip on rank c + 1, and reaches rank c + 1 + k with message k.
  ring_trip({ranks: p, rank, chunk, message}) {
    const r = rank % p, c = chunk % p, k = Math.min(message, p - 1), arrival = (r - 1 - c + 2 * p) % p;
    const count = arrival <= k ? arrival + 1 : 1;
    let holds = 0;
    for (let i = 0; i < count; ++i) holds += 2 ** ((r - i + p) % p);
    return {holds, count, leaving: k < p - 1 ? (r - 1 - k + 2 * p) % p : null};
  },

  // Message r goes from rank r to its right neighbour. It waits for the message of whichever of both does the other call first.
  waiting_sends({ranks: p, order}) {
    const sendsFirst = (rank) => Math.floor(order / 2 ** (rank % p)) % 2 === 1;
    const roundOf = (message, waiting) => {
      if (waiting > p) return Infinity;  // in a cycle
      const before = [];
      if (!sendsFirst(message)) before.push(message + p - 1);
      if (sendsFirst(message + 1)) before.push(message + 1);
      return 1 + Math.max(0, ...before.map((one) => roundOf(one % p, waiting + 1)));
    };
    const rounds = Math.max(...Array.from({length: p}, (_, message) => roundOf(message, 1)));
    return {rounds: Number.isFinite(rounds) ? rounds : null};
  },
};

if (typeof module === "object") module.exports = {FORMULAS};
