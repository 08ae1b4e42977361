"""Figures: a function takes data and returns a finished `Picture`; parts draw into axes (`ax`).

style      : colors, text sizes, axes, `show`
canvas     : the drawing kit: tables of numbers, frames, arrows, texts
figure     : `Picture`, which shows itself as a cell's last line, and knows its alt text
overflow   : what leaves the canvas or its bar, or touches: `style.encode` warns of it
images     : images and grids of them, patches, attention over an image, bars, color bars

The other files have the name of the notebook that they serve first, and a topic where there are
two:

00 start_here, start_here_map (the map that opens notebooks 00 to 05)
01 patches, patches_filters, patches_reshaping
02 embeddings, embeddings_positions
03 attention, attention_steps
04 encoder, encoder_stacks
05 vit, vit_attention
06 data, data_copies, data_pipeline
07 training, training_loop, training_evidence
08 inspection, inspection_heads, inspection_photos
09 pretrained, pretrained_further
10 ablation, ablation_errors
11 scaling, scaling_distributed, scaling_evidence
12 since_2020

animation  : the moving picture of the README, of which notebook 08 shows a moment
explorer   : what the widgets of `vit_helpers.live` show first
"""
