// The answers of the server, which src/cubicflow/explore makes. This file is for tsc alone.

/** The answers to questions that have no other words in their address. */
interface Answers {
  run: Run;
  columns: Columns;
  data: Data;
  points: Points;
  training: Training;
  score: Score;
  layers: Layers;
  "what-if": WhatIf;
  sample: Sample;
}
type Answer<Name> = Name extends keyof Answers ? Answers[Name] : any;

type Shaped = (Float32Array | Float64Array | Int32Array | Uint8Array) & { shape: number[] };
type Tick = [value: number, label: string];

interface Run {
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

interface Column {
  name: string;
  kind: string;
  about: string;
  isList: boolean;
  isDate: boolean;
  isCircle: boolean;
  hasGaps: boolean;
  isGiven: boolean;
  decimals: number | null;
  step: number | null;
  bins: number; // without the bin of missing values, which is the last
  bars: string[]; // the labels of the bars of a list
  hasOthers: boolean; // whether the last bar is for all other values
  menu: string[];
  words: number;
  edges: number[]; // the edges of the bins of numbers
  ends: number[]; // of the axis; a word is in the middle of its unit
  usual?: string; // the usual value of a context column
}

interface Columns {
  columns: Column[];
  given: Column[];
  ofData: boolean;
  others: { name: string; about: string }[];
  names: string[];
  arrays: Masses;
}

/** A row for each column: the masses of its bins, the last of them of missing values, and its quantiles. */
interface Masses {
  masses: Shaped;
  quantiles: Shaped;
}

interface Data {
  rows: number;
  notes: string[];
  arrays: Masses;
}

interface WhatIf {
  probability: number;
  isDensity: boolean;
  effectiveSize: number | null; // null for an exact answer
  arrays: Masses & { errors: Shaped };
}

interface Points {
  notes: string[];
  arrays: { model: Shaped; data?: Shaped; bins: Shaped }; // places from 0 to 1, and the bins of the data or the model
}

interface Density {
  isExact: boolean;
  arrays: { density: Shaped };
}

interface Training {
  curves: [key: string, label: string][];
  arrays: Record<string, Shaped>;
}

interface Score {
  verdict: string | null;
  facts: [text: string, mean: number, error: number][];
  warnings: string[];
  judgement: { verdict: string; lines: string[][] } | null;
}

interface Layers {
  kind: "columns" | "flow" | "context";
  layers: { name: string; feature: number | null }[];
  steps: string[];
  names: string[];
  order: string[];
  context: string;
  arrays: { x: Shaped; y: Shaped; path: Shaped; below: Shaped; lines?: Shaped };
}

interface Sample {
  columns: string[];
  cells: string[][];
  notes: string[];
}

interface ScoredRows {
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
