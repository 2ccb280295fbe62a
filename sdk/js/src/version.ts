/** The version of this package, as servers are told; package.json has the same. */
export const VERSION = "0.1.0";
