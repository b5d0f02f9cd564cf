/** Digits behind the point that a sum keeps; a number has no more than 17 that count, so what is lost is below any price. */
const DIGITS = 40;
const ONE = 10n ** BigInt(DIGITS);

/** Numbers added as the decimals that they are written as: 0.1 and 0.2 are 0.3, whatever came before. */
export class DecimalSum {
  #sum = 0n;

  add(value: number): void {
    this.#sum += scaled(value);
  }

  subtract(value: number): void {
    this.#sum -= scaled(value);
  }

  /** Without trailing zeros. */
  toString(): string {
    const positive = this.#sum < 0n ? -this.#sum : this.#sum;
    const fraction = String(positive % ONE)
      .padStart(DIGITS, '0')
      .replace(/0+$/, '');
    return `${this.#sum < 0n ? '-' : ''}${positive / ONE}${fraction === '' ? '' : `.${fraction}`}`;
  }
}

function scaled(value: number): bigint {
  const [mantissa = '0', exponent = '0'] = String(value).split('e');
  const [whole = '0', fraction = ''] = mantissa.split('.');
  const places = DIGITS - fraction.length + Number(exponent);
  return places < 0 ? 0n : BigInt(whole + fraction) * 10n ** BigInt(places);
}
