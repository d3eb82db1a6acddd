// The line that says of a generated file that it is one.

export const MARK = '// Generated from abi/ by `npm run build`; not committed. Edit the table, not this file.\n';
