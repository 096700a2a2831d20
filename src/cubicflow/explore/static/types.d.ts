// The answers of the server, which src/cubicflow/explore makes. This file is for tsc alone.

export type Shaped = (Float32Array | Float64Array | Int32Array | Uint8Array) & { shape: number[] };
export type Tick = [value: number, label: string];

export interface Run {
  name: string;
  kind: "columns" | "flow" | "array" | "images";
  model: string;
  parameters: number;
  state: "finished" | "training" | "stopped";
  step: number | null;
  source: string | null;
  notes: string[];
  version: string;
}

export interface Column {
  name: string;
  kind: string;
  about: string;
  isList: boolean;
  isDate: boolean;
  isWhole: boolean;
  hasGaps: boolean;
  isGiven: boolean;
  decimals: number | null;
  step: number | null;
  bars: string[]; // the labels of the bars of a list
  hasOthers: boolean; // whether the last bar is for all other values
  menu: string[];
  words: number;
  edges: number[]; // the edges of the bins of numbers
  usual?: string; // the usual value of a context column
}

export interface Columns {
  columns: Column[];
  given: Column[];
  ofData: boolean;
  others: { name: string; about: string }[];
  names: string[];
  arrays: { masses: Shaped; quantiles: Shaped };
}

export interface Data {
  rows: number;
  notes: string[];
  arrays: { masses: Shaped; quantiles: Shaped };
}

export interface WhatIf {
  probability: number;
  isDensity: boolean;
  effectiveSize: number | null; // null for an exact answer
  arrays: { masses: Shaped; errors: Shaped; quantiles: Shaped };
}

export interface Points {
  notes: string[];
  arrays: { model: Shaped; data?: Shaped };
}

export interface Density {
  isExact: boolean;
  arrays: { density: Shaped };
}

export interface Training {
  curves: [key: string, label: string][];
  arrays: Record<string, Shaped>;
}

type Mean = [mean: number, error: number];
export interface Score {
  verdict: string | null;
  parts: [name: string, rows: number, model: Mean, independent: Mean | null, gain: Mean | null][];
  warnings: string[];
  judgement: { verdict: string; lines: string[][] } | null;
}

export interface Layers {
  kind: "columns" | "flow" | "images" | "context";
  layers: { name: string; feature: number | null }[];
  steps: string[];
  names: string[];
  order: string[];
  context: string;
  arrays: { x: Shaped; y: Shaped; path: Shaped; lines?: Shaped };
}

export interface Sample {
  columns: string[];
  cells: string[][];
  notes: string[];
}

export interface ScoredRows {
  rows: number;
  shown: number[]; // the numbers of the rows in cells, the least likely first, incomplete rows last
  columns: string[];
  cells: string[][];
  explained: string[];
  reference: string;
  way: "before" | "rest";
  ignored: string[];
  arrays: { scores: Shaped; percentiles: Shaped; conditionals?: Shaped; ranks?: Shaped };
}
