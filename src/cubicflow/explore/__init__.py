"""``cubicflow explore RUN``: a local web page for exploring a fitted density.

The modules, each built on the ones above it:

    framed                        a JSON header and arrays as one binary answer, in safetensors
    questions                     the values of a question, and errors as sentences without paths
    subject, opened_run           one run: its model, its rows and its problems; reopened when the folder changes
    overview, row_scores, flow_layers, pictures
                                  the data of each view
    threads                       threads with idle work, and jobs that end when their browser leaves
    samples                       drawn rows that meet conditions
    cached_overview               the overview of a run that was opened before
    explorer                      one run with its threads, and the answer to every question
    guard, app, server            access control, routes, the server; they need no torch
    static/                       the page: one HTML file, one stylesheet, a module for each view

All numbers about the model come from the layers below. Nothing here is imported before the command runs.
"""
