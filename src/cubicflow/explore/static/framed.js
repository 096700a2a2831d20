// Decodes answers of the server: safetensors with a JSON header, written by src/cubicflow/explore/framed.py.

const KINDS = { F32: Float32Array, F64: Float64Array, I32: Int32Array, U8: Uint8Array };

export function unframed(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__: notes, ...about } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets: [first, end] }] of Object.entries(about)) {
    const Kind = KINDS[dtype];
    arrays[name] = Object.assign(new Kind(buffer, 8 + length + first, (end - first) / Kind.BYTES_PER_ELEMENT), { shape });
  }
  return { ...JSON.parse(notes.answer), arrays };
}

export class Refused extends Error {}

async function answered(response) {
  if (response.ok) return unframed(await response.arrayBuffer());
  let message = `the server answered ${response.status}`;
  try { message = (await response.clone().json()).error || message; } catch { message = (await response.text()) || message; }
  throw new Refused(message);
}

export async function get(path, signal) {
  return answered(await fetch(path, { signal }));
}

export async function post(path, body, signal) {
  const content = body instanceof Blob || body instanceof ArrayBuffer ? body : JSON.stringify(body);
  return answered(await fetch(path, { method: "POST", body: content, headers: { "X-Cubicflow": "1" }, signal }));
}
