// JSON of another process, held to the table: abi/exchange.ts says what each file has.
import { EXCHANGE_SHAPES, type ExchangeShapes, type FieldShape } from '../abi/exchange.ts';
import { InputError } from './errors.ts';

/** The value as the shape it must have; InputError names the first field that does not fit. Other keys are passed over. */
export function readShape<Name extends keyof ExchangeShapes>(name: Name, data: unknown): ExchangeShapes[Name] {
  const fault = faultIn(name, data, name);
  if (fault !== undefined) throw new InputError(fault);
  return data as ExchangeShapes[Name];
}

function faultIn(name: keyof ExchangeShapes, data: unknown, where: string): string | undefined {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return `${where} is no object`;
  for (const [key, shape] of Object.entries(EXCHANGE_SHAPES[name])) {
    const value = (data as Record<string, unknown>)[key];
    if ((value === undefined || value === null) && shape.optional) continue;
    const fault = faultOf(shape.type, value, `${where}.${key}`);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function faultOf(type: FieldShape['type'], value: unknown, where: string): string | undefined {
  if (typeof type === 'object') {
    if ('object' in type) return faultIn(type.object, value, where);
    if ('choice' in type) return type.choice.some((word) => word === value) ? undefined : `${where} is none of ${type.choice.join(', ')}`;
    if (!Array.isArray(value)) return `${where} is no list`;
    return firstOf(value, (entry, index) => faultIn(type.list, entry, `${where}[${index}]`));
  }
  switch (type) {
    case 'text':
      return typeof value === 'string' ? undefined : `${where} is no text`;
    case 'flag':
      return typeof value === 'boolean' ? undefined : `${where} is neither true nor false`;
    case 'number':
      return Number.isFinite(value) ? undefined : `${where} is no number`;
    case 'whole':
      return Number.isSafeInteger(value) ? undefined : `${where} is no whole number`;
    case 'numbers':
      return Array.isArray(value) && value.every(Number.isFinite) ? undefined : `${where} is no list of numbers`;
  }
}

function firstOf<Item>(items: readonly Item[], faultOfItem: (item: Item, index: number) => string | undefined): string | undefined {
  for (const [index, item] of items.entries()) {
    const fault = faultOfItem(item, index);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
