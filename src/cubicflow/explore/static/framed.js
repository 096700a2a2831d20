// Decodes answers of the server: a JSON header and typed arrays, written by src/cubicflow/explore/framed.py.

const KINDS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, uint8: Uint8Array };

export function unframed(buffer) {
  const view = new DataView(buffer);
  if (view.getUint32(0) !== 0x43465831) throw new Error("the answer is not in cubicflow's format");
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, offset }] of Object.entries(header.arrays)) {
    const count = shape.reduce((a, b) => a * b, 1);
    arrays[name] = Object.assign(new KINDS[dtype](buffer, 8 + length + offset, count), { shape });
  }
  return { ...header, arrays };
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
