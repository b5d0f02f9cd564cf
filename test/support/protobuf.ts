/** The wire format of Protocol Buffers, as far as it can be read without a schema: numbered fields in their order. */
export interface Field {
  readonly number: number;
  readonly value: bigint | Buffer;
}

/** @throws when the bytes are no message */
export function fieldsOf(bytes: Buffer): Field[] {
  const fields: Field[] = [];
  for (let at = 0; at < bytes.length;) {
    const tag = varint(bytes, at);
    const number = Number(tag.value >> 3n);
    const { value, next } = valueAt(bytes, tag.next, Number(tag.value & 7n));
    fields.push({ number, value });
    at = next;
  }
  return fields;
}

function valueAt(bytes: Buffer, at: number, wireType: number): { value: bigint | Buffer; next: number } {
  switch (wireType) {
    case 0:
      return varint(bytes, at);
    case 1:
      return { value: bytes.readBigUInt64LE(at), next: at + 8 };
    case 2: {
      const { value: length, next } = varint(bytes, at);
      const end = next + Number(length);
      if (end > bytes.length) throw new Error('a field is longer than its message');
      return { value: bytes.subarray(next, end), next: end };
    }
    case 5:
      return { value: BigInt(bytes.readUInt32LE(at)), next: at + 4 };
    default:
      throw new Error(`no wire type: ${wireType}`);
  }
}

function varint(bytes: Buffer, at: number): { value: bigint; next: number } {
  let value = 0n;
  for (let i = 0; i < 10; i++) {
    const byte = bytes.readUInt8(at + i);
    value |= BigInt(byte & 0x7f) << BigInt(7 * i);
    if (byte < 0x80) return { value: BigInt.asUintN(64, value), next: at + i + 1 };
  }
  throw new Error('a number is too long');
}

/** The embedded messages of a repeated field. */
export function messages(fields: readonly Field[], number: number): Field[][] {
  return fields.flatMap((field) => (field.number === number ? [fieldsOf(bytesOf(field))] : []));
}

export function bytes(fields: readonly Field[], number: number): Buffer {
  const field = fields.findLast((one) => one.number === number);
  return field === undefined ? Buffer.alloc(0) : bytesOf(field);
}

export function integer(fields: readonly Field[], number: number): bigint {
  const value = fields.findLast((one) => one.number === number)?.value ?? 0n;
  if (typeof value !== 'bigint') throw new Error(`field ${number} is no number`);
  return value;
}

function bytesOf({ number, value }: Field): Buffer {
  if (typeof value === 'bigint') throw new Error(`field ${number} has no bytes`);
  return value;
}
