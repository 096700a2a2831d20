"""``cubicflow explore RUN``: a page, served to this machine alone, on which a person explores a fitted density.

In the order in which they build on one another:

    framed                        arrays and a JSON header as one answer
    shown_columns                 what the page knows of each column: its axis, bins, labels
    subject, opened_run           one run: its model, its rows, what is wrong with it; opened anew when it changes
    pool, answers                 a pool of rows with the law of every cell; conditional densities from it
    overview, row_scores, flow_layers, pictures
                                  what each view asks for
    workers, guard, app, server   threads, who may ask, the routes, the server
    static/                       the page: one HTML file, one stylesheet, a module for each view, uPlot

Every answer about the model comes from the layers below. Nothing here is imported before the command is run.
"""
